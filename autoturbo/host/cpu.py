"""The processor of this computer as a target: cores, caches, and what they reach.

Caches stand where an accelerator has local and global buffers. Rates are measured by a benchmark of
a second or two, once for a processor and a version of ONNX Runtime, and kept in the user's cache.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoturbo.database.run_folder import run_id
from autoturbo.files import atomic_write
from autoturbo.schema import InvalidError, checked, form_of

_PRODUCT = 768
"""Rows, columns and inner extent of the product that is timed."""

_COPIED = 1 << 28
"""Bytes that are copied: more than any cache holds."""

_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor as ONNX Runtime sees it.

    Attributes:
        name: Name of the processor's model.
        cores: Physical ones that this process may use.
        hardware_threads: Hardware threads of these cores.
        l2_bytes: Bytes of the second-level cache of one core; 0 where the system does not say.
        l3_bytes: Bytes of the largest cache that cores share; 0 where the system does not say.
        bandwidth: Bytes per second that all cores copy, read and written.
        core_macs_per_s: Multiply-accumulates per second of one core in a product of float32.
        macs_per_s: Multiply-accumulates per second of all cores together.
    """

    name: str
    cores: int
    hardware_threads: int
    l2_bytes: int
    l3_bytes: int
    bandwidth: float
    core_macs_per_s: float
    macs_per_s: float

    @property
    def bytes_per_mac(self) -> float:
        """Return the bytes that are moved while one multiplication is made."""
        return self.bandwidth / self.macs_per_s

    def layouts(self) -> tuple[tuple[int, int], ...]:
        """Return workers and threads that use all cores, or all hardware threads.

        One worker, one thread for each worker, and something in the middle: workers of several
        threads have sessions of their own, with weights of their own.
        """
        pairs: dict[tuple[int, int], None] = {}
        for total in (self.cores, self.hardware_threads):
            # The divisor nearest below the root: as many workers as threads of each, about.
            middle = max(w for w in range(1, math.isqrt(total) + 1) if total % w == 0)
            for workers in (1, middle, total):
                pairs[workers, total // workers] = None
        return tuple(pairs)


def this_cpu() -> Cpu:
    """Return the description of this computer's processor, measured where it is not kept yet.

    Raises:
        UnrunnableError: ONNX Runtime is not installed.
    """
    facts = _facts()
    file = _folder() / f"cpu-{run_id(facts)}.json"
    with suppress(OSError, ValueError, InvalidError):
        kept: dict[str, Any] = checked(form_of(Cpu), json.loads(file.read_text(encoding="utf-8")))
        return Cpu(**kept)
    found = _measured(facts)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(asdict(found), indent=1).encode())
    return found


def _folder() -> Path:
    """Return the folder in which descriptions are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "autoturbo"


def _facts() -> dict[str, Any]:
    """Return the system's facts on the processor, and the version of ONNX Runtime."""
    from autoturbo.host.runner import runtime_version

    usable = sorted(_usable())
    system = Path("/sys/devices/system/cpu")
    cores = {_read(system / f"cpu{i}/topology/thread_siblings_list") or str(i) for i in usable}
    caches = _caches(system / f"cpu{usable[0]}/cache")
    return {
        "name": _name(), "cores": len(cores), "hardware_threads": len(usable),
        "l2_bytes": caches.get(2, 0), "l3_bytes": caches.get(3, 0), "runtime": runtime_version(),
    }  # fmt: skip


def _usable() -> set[int]:
    """Return the numbers of the hardware threads that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _name() -> str:
    """Return the name of the processor's model."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _caches(folder: Path) -> dict[int, int]:
    """Return the bytes of a core's caches by level, without those of instructions."""
    found = {}
    for index in sorted(folder.glob("index*")) if folder.is_dir() else []:
        level, size = _read(index / "level"), _read(index / "size")
        if _read(index / "type") != "Instruction" and level.isdigit() and size[:-1].isdigit():
            found[int(level)] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    return found


def _read(file: Path) -> str:
    """Return the text of a system's file; empty where there is none."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _measured(facts: Mapping[str, Any]) -> Cpu:
    """Return the description with measured rates."""
    from autoturbo.host.runner import product_session

    macs = []
    for threads in (1, facts["cores"]):
        run = product_session(_PRODUCT, threads)
        macs.append(_PRODUCT**3 / _seconds(run))
    source = np.ones(_COPIED // 8)
    copy = np.empty_like(source)
    copied_s = _seconds(lambda: np.copyto(copy, source))
    known = {name: value for name, value in facts.items() if name != "runtime"}
    return Cpu(
        **known, bandwidth=2 * _COPIED / copied_s, core_macs_per_s=macs[0], macs_per_s=max(macs)
    )


def _seconds(run: Callable[[], object]) -> float:
    """Return the median seconds of some runs after a first one."""
    run()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
