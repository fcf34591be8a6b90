"""AutoTurbo's schedules as Triton kernels on a GPU: targets, lowering, measurers, case study."""
