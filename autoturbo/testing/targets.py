"""The contract of targets: valid, complete in their file, and sensible when simulated.

Every check is a function of a :class:`TargetCase`; all of them are in :data:`TARGET_CHECKS`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from autoturbo.errors import TargetError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.machine_files import find_machine, find_target
from autoturbo.hardware.presets import load_target, validate_target_file, with_field
from autoturbo.hardware.target import Target
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.simulator.measurement import Measurement
from autoturbo.testing.contract import ContractError, bounded, check_all

if TYPE_CHECKING:
    from autoturbo.simulator.measurers import Measurer

FASTER = (
    "clock_mhz",
    "engines[transfer].bandwidth_gb_s",
    "engines[dma].bandwidth_gb_s",
    "lb.bandwidth_gb_s",
    "gb.bandwidth_gb_s",
    "ddr.bandwidth_gb_s",
)
"""Fields that may only make a chip faster as they grow."""

_TIMES = 4
"""How much faster each of them is made."""


@dataclass(frozen=True, slots=True)
class TargetCase:
    """A target under test, with its claims.

    Attributes:
        target: Itself, a machine of several units, a preset's or plug-in's name, or a file.
        measurer: Builds what measures; the simulator if None.
        tolerance: Share by which a faster chip may be slower: the heuristic splits work by whole
            numbers of tiles, which may come out otherwise on another chip.
        deadline_s: Seconds after which a check is said never to end.
    """

    target: Target | Machine | str | Path
    measurer: Callable[[], Measurer] | None = None
    tolerance: float = 0.05
    deadline_s: float = 120.0


def check_target(target: Target | Machine | str | Path, **claims: Any) -> None:
    """Run every check of :data:`TARGET_CHECKS`.

    Args:
        target: What is tried.
        claims: Further attributes of :class:`TargetCase`.

    Raises:
        ContractError: The first thing that is wrong.
    """
    check_all(TARGET_CHECKS, TargetCase(target, **claims))


@bounded("the target")
def it_is_valid(case: TargetCase) -> None:
    """Check that it loads without errors, and that engines for its data types are described."""
    if _is_file(case.target) and find_machine(os.fspath(_path(case))) is None:
        for error in validate_target_file(_path(case)):
            raise ContractError(str(error))
    for target in _targets(case):
        if not target.dtypes:
            raise ContractError(f"{target.name}: computes in no data type")
        if target.default_dtype not in target.dtypes:
            raise ContractError(f"{target.name}: does not have its own default data type")


@bounded("the file")
def its_file_says_it_all(case: TargetCase) -> None:
    """Check that a target written to a file and read back is the same, with the same hash."""
    for target in _targets(case):
        read = _read_back(target)
        names = [f.name for f in dataclasses.fields(Target)]
        differing = [n for n in names if getattr(read, n) != getattr(target, n)]
        if differing:
            raise ContractError(f"{target.name}: not the same in its file: {', '.join(differing)}")
        if read.hash != target.hash:
            raise ContractError(f"{target.name}: its file has another hash")


@bounded("small networks")
def small_networks_can_be_simulated(case: TargetCase) -> None:
    """Check each data type; a schedule that beats the lower bound counts as none."""
    for target in _targets(case):
        for dtype in target.dtypes:
            for _ in _measured(case, target, dtype):
                pass


@bounded("faster parts")
def faster_parts_never_make_it_slower(case: TargetCase) -> None:
    """Check that the best of a few schedulers is no slower on a chip with one faster part."""
    for target in _targets(case):
        before = dict(_best(case, target))
        for field in FASTER:
            better = _faster(target, field)
            for name, seconds in _best(case, better) if better is not None else ():
                if seconds > before[name] * (1 + case.tolerance):
                    more = f"{100 * (seconds / before[name] - 1):.3g} %"
                    what = f"{_TIMES} times {field} makes {name} {more} slower"
                    raise ContractError(f"{target.name}: {what}")


TARGET_CHECKS: Sequence[Callable[[TargetCase], None]] = (
    it_is_valid,
    its_file_says_it_all,
    small_networks_can_be_simulated,
    faster_parts_never_make_it_slower,
)
"""Every check of a target."""


def _targets(case: TargetCase) -> tuple[Target, ...]:
    """Return the target, or those of a machine's units, each kind once.

    Raises:
        ContractError: It is none.
    """
    try:
        target: TuningTarget | str | Path = case.target
        if isinstance(target, str | Path):
            target = find_target(target)
    except TargetError as error:
        raise ContractError(str(error)) from error
    if isinstance(target, Machine):
        return tuple({unit.kind: unit.target for unit in target.units}.values())
    return (target,) if isinstance(target, Target) else ()


def _is_file(target: Target | Machine | str | Path) -> bool:
    return isinstance(target, str | Path) and Path(target).is_file()


def _path(case: TargetCase) -> Path:
    return Path(str(case.target))


def _read_back(target: Target) -> Target:
    # a unit's name has its machine's in front, which no file may have
    name = target.name.replace("/", ".")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "target.json"
        file.write_text(json.dumps({**target.as_dict(), "name": name}), encoding="utf-8")
        try:
            read = load_target(file)
        except TargetError as error:
            raise ContractError(f"{target.name}: its file is not valid: {error}") from error
    return dataclasses.replace(read, name=target.name)


def _measured(
    case: TargetCase, target: Target, dtype: str
) -> Iterator[tuple[Graph, list[Measurement]]]:
    """Yield the measurements of every scheduler for each small network."""
    from autoturbo.simulator.evaluator import Evaluator
    from autoturbo.testing.contract import small_networks

    for graph in small_networks():
        measurer = None if case.measurer is None else case.measurer()
        evaluator = Evaluator(graph, target, dtype, measurer)
        outcomes = [evaluator.measure_scheduler(name) for name in ("graphturbo", "tvm", "O2")]
        measured = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
        if not measured:
            what = getattr(outcomes[0], "message", "no schedule")
            raise ContractError(f"{target.name}: {graph.name} in {dtype} does not run: {what}")
        yield graph, measured


def _best(case: TargetCase, target: Target) -> Iterator[tuple[str, float]]:
    for graph, measured in _measured(case, target, target.default_dtype):
        yield graph.name, min(measurement.latency for measurement in measured)


def _faster(target: Target, field: str) -> Target | None:
    """Return the target with one part faster; None where it has no such part, or no faster one."""
    value: Any = target.as_dict()
    section, _, name = field.rpartition(".")
    if section.startswith("engines["):
        kind = section[len("engines[") : -1]
        value = next((e for e in value["engines"] if e["kind"] == kind), {})
    elif section:
        value = value.get(section, {})
    if not value.get(name):
        return None
    try:
        return with_field(target, field, value[name] * _TIMES)
    except TargetError:
        return None


__all__ = ["FASTER", "TARGET_CHECKS", "TargetCase", "check_target"]
