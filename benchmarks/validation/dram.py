"""Efficiency of off-chip memory beside DRAMsim3: by run length, streams and share of writes.

``python benchmarks/validation/dram.py [--reference FILE]``. Timing is that of the configurations
named in the table (DRAMsim3's files for DDR4 and HBM2, JESD209-4 as remembered for LPDDR4); nothing
is fitted to the table.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from validation_tools import Errors, chosen_reference, print_table, reference_rows

from autoturbo.hardware import DramTiming, Target, load_target
from autoturbo.hardware.dram import dram_efficiency

DDR4 = DramTiming(  # DDR4_8Gb_x8_3200: one channel of 64 bit, two ranks, clock 0.63 ns
    channels=1, burst=64, page=8192, interleave=8192, banks=2 * 16, row_cycle=74 * 0.63e-9,
    four_activates=34 * 0.63e-9 / 2, groups=4, group_gap=8 / 4, group_interleave=False,
    turnaround=31 * 0.63e-9,  # CL 22, CWL 16, BL/2 4, tWTR_L 12, less the bursts themselves
    write_batch=16 * 64, queue=(16 + 8) * 64,  # requests in the controller's queues
)  # fmt: skip

HBM2 = DramTiming(  # HBM2_8Gb_x128: eight channels of 128 bit, one rank, clock 1 ns
    channels=8, burst=64, page=1024, interleave=1024, banks=16, row_cycle=48e-9,
    four_activates=30e-9, groups=4, group_gap=1.0, group_interleave=False,
    turnaround=23e-9,  # CL 14, CWL 4, BL/2 2, tWTR_L 8, less the bursts themselves
    write_batch=16 * 64, queue=(16 + 32) * 64,
)  # fmt: skip

LPDDR4 = DramTiming(  # LPDDR4_8Gb_x16_2400: one channel of 64 bit, four ranks, clock 0.83 ns
    channels=1, burst=128, page=8192, interleave=8192, banks=4 * 8, row_cycle=61e-9,
    four_activates=40e-9 / 4, groups=1, group_gap=1.0, group_interleave=False,
    turnaround=36 * 0.83e-9,  # RL 24, WL 12, BL/2 8, tWTR 10 ns, less the bursts themselves
    write_batch=16 * 128, queue=(16 + 8) * 128,
)  # fmt: skip


def machine(bandwidth: float, lost_to_refresh: float, timing: DramTiming) -> Target:
    """Return a chip with that memory; nothing but its memory matters here."""
    base = load_target("stcp920")
    ddr = dataclasses.replace(base.ddr, bandwidth=bandwidth, efficiency=1 - lost_to_refresh)
    return dataclasses.replace(base, ddr=ddr, dram=timing)


# Refresh takes tRFC of each tREFI from one rank at a time. "bgil" is the same memory with bank
# groups in the lowest address bits, and with HBM the channels right above them.
MACHINES = {
    "DDR4_8Gb_x8_3200.ini": machine(16 / 0.63e-9, 560 / 12480 / 2, DDR4),
    "DDR4_3200_bgil.ini": machine(
        16 / 0.63e-9, 560 / 12480 / 2, dataclasses.replace(DDR4, group_interleave=True)
    ),
    "HBM2_8Gb_x128.ini": machine(256e9, 260 / 3900, HBM2),
    "HBM2_bgil.ini": machine(
        256e9, 260 / 3900, dataclasses.replace(HBM2, group_interleave=True, interleave=256)
    ),
    "LPDDR4_8Gb_x16_2400.ini": machine(16 / 0.83e-9, 280 / 3904 / 4, LPDDR4),
}


def modelled(row: dict[str, str]) -> float:
    """Return the model's efficiency for a row: the share of the peak that it reaches."""
    run = max(int(row["chunk_bytes"]), int(row["req_bytes"]))  # a request is never cut
    return dram_efficiency(
        MACHINES[row["config"]], run,
        streams=int(row["streams"]), write_share=float(row["write_frac"]),
    )  # fmt: skip


def measured(row: dict[str, str]) -> float:
    """Return the reference's efficiency for a row, likewise."""
    return float(row["gbps"]) * 1e9 / MACHINES[row["config"]].ddr.bandwidth


def compare(path: Path) -> dict[str, Errors]:
    """Return errors by configuration; rows of those that are not known here are left out."""
    rows = [row for row in reference_rows(path) if row["config"] in MACHINES]
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["config"], []).append(modelled(row) / measured(row) - 1)
    return {config: Errors(tuple(values)) for config, values in found.items()}


def main() -> None:
    """Print every row, then a line for each configuration and for all."""
    path = chosen_reference(__doc__ or "", "dram_efficiency.csv")
    every = reference_rows(path)
    rows = [row for row in every if row["config"] in MACHINES]
    print_table(
        ("configuration", "streams", "run", "writes", "reference", "model", "error"),
        (
            (
                row["config"], row["streams"], row["chunk_bytes"], row["write_frac"],
                f"{measured(row):.3f}", f"{modelled(row):.3f}",
                f"{modelled(row) / measured(row) - 1:+.1%}",
            )
            for row in rows
        ),
    )  # fmt: skip
    if len(rows) < len(every):
        print(f"{len(every) - len(rows)} rows of configurations that are not known here left out")
    errors = compare(path)
    for config, found in errors.items():
        print(found.line(config))
    print(Errors(tuple(e for found in errors.values() for e in found.values)).line("all"))


if __name__ == "__main__":
    main()
