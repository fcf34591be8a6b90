"""The other systems' decisions on the same data types: what our schedules are compared with.

Every scheduler turns a workbench into candidates that differ in the batches per cluster only ("a
round of beforehand autotuning executions" chose them for all systems of the paper, section 5.1);
the fastest is taken. They are registered by name in :mod:`autoturbo.registry`.

==================  ================================================================================
``tvm``             TVM v0.8's kernels, all outputs in DDR
``astitch``         AStitch: memory-intensive operators stitched, products on their own
``O0`` ``O1`` ...   levels of the vendor's compiler; ``O3`` is another name of ``graphturbo``
``gb_outputs``      rungs of the paper's ablation (Fig. 15) from ``tvm`` up: TVM's kernels with
``lb_outputs``      outputs in GB, in LB, then
``instance_order``  splitting, grouping and ordering instances, then
``graphturbo``      across-layer instruction scheduling
``prefetching``     ``graphturbo`` whose loads run over its kernels, where the target's DMA can
``fitted``          ``graphturbo`` on the part of the chip on which it is fastest
==================  ================================================================================

Blocks of layers with cores of their own (:mod:`autoturbo.baselines.dlfusion`) and machines of
several units (:mod:`autoturbo.baselines.partition_tuner`) have their own schedulers.
"""
