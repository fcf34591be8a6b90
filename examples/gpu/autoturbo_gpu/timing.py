"""Seconds of programs on a GPU, and what the GPU was like meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch

ASKED = {
    "sm_clock_mhz": "clocks.sm", "memory_clock_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu", "power_w": "power.draw",
}  # fmt: skip
"""What ``nvidia-smi`` calls the conditions."""


@dataclass(frozen=True)
class Conditions:
    """What a GPU was like at one moment; NaN where it does not tell.

    Attributes:
        sm_clock_mhz: Of the SMs.
        memory_clock_mhz: Of the memory.
        temperature_c: Of the chip.
        power_w: Of the card.
    """

    sm_clock_mhz: float
    memory_clock_mhz: float
    temperature_c: float
    power_w: float

    def __str__(self) -> str:
        return (
            f"SMs at {self.sm_clock_mhz:.0f} MHz, memory at {self.memory_clock_mhz:.0f} MHz, "
            f"{self.temperature_c:.0f} C, {self.power_w:.0f} W"
        )


def conditions() -> Conditions:
    """Return the conditions of the first GPU, as ``nvidia-smi`` tells them."""
    asked = ",".join(ASKED.values())
    command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return Conditions(*(float("nan") for _ in fields(Conditions)))
    return read_conditions(done.stdout)


def read_conditions(line: str) -> Conditions:
    """Return the conditions that a line of ``nvidia-smi`` has; NaN for ``[N/A]``."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return float("nan")

    return Conditions(*map(number, line.strip().split(",")))


class Flush:
    """Empties the L2 cache: writes twice as much as it holds."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(0).L2_cache_size
        self._room = torch.empty(2 * size, dtype=torch.int8, device="cuda")

    def __call__(self) -> None:
        """Leave nothing of what a program may read in the cache."""
        self._room.zero_()


def seconds(
    run: Callable[[], None], repeats: int, before: Callable[[], None] = lambda: None
) -> list[float]:
    """Return the seconds that the GPU takes for each of some runs.

    Args:
        run: Launches what is timed, without waiting for it.
        repeats: How often.
        before: Done before each run, and not timed.
    """
    pairs: Sequence[tuple[torch.cuda.Event, torch.cuda.Event]] = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(repeats)
    ]
    for begin, end in pairs:
        before()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
