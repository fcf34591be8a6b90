"""Other schedulers of whole networks on their own machines, and ours beside them.

::

    python benchmarks/peers/peers.py                              # all rows of both tables
    python benchmarks/peers/peers.py --peers SoMa --machines soma-edge --batches 1,4
    python benchmarks/peers/peers.py --peers AccelForge           # the table of traffic
    python benchmarks/peers/peers.py --json

``results.csv`` has what SoMa, SET and Stream reach, ``traffic.csv`` the optimal DRAM traffic by
AccelForge. Each network is tuned once for a machine and a batch. ``docs/peers.md`` says how the
models differ and how to make the peers' figures again. Compiled code is cached by the first run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

import quad_core
from bench_tools import print_table
from mappers import number, read_table
from peer_networks import network

import autoturbo
from autoturbo.errors import AutoTurboError, UsageError, did_you_mean
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"
TRAFFIC = FOLDER / "traffic.csv"
TARGETS = FOLDER / "targets"

DTYPE = "int8"
MIB = 2**20
KINDS = ("published", "run", "derived", "none")
"""Where a peer's figure is from; ``none`` where nobody has one and ours stands alone."""

IM2COL = "+im2col"
"""Ending of a machine whose array takes kernel positions beside channels."""

QUAD_CORE = "quad-core-"
"""Beginning of Stream's machines."""

TILE_DIVISORS = (1, 2, 4, 8, 16)
"""Sizes of tiles that one kernel a layer is tried with."""


@dataclass(frozen=True)
class Theirs:
    """One row of ``results.csv``: a schedule of a peer.

    Attributes:
        peer: The scheduler.
        machine: Name of a target, with an ending where its array differs.
        network: Name of what it scheduled.
        batch: Samples.
        what: Which of its schedules.
        cycles: Of the batch; None where no figure is known.
        megabytes: Moved from and to DRAM, if it says so.
        cpu_s: Processor seconds of its search, if it says so.
        bound: Cycles of its own lower bound, if it says so.
        kind: One of :data:`KINDS`.
        source: Who made the figure, and with what.
        command: What makes it again in the peer's repository.
        same_work: Whether the peer scheduled this network, and not one beside which it stands.
    """

    peer: str
    machine: str
    network: str
    batch: int
    what: str
    cycles: float | None
    megabytes: float | None
    cpu_s: float | None
    bound: float | None
    kind: str
    source: str
    command: str
    same_work: bool


@dataclass(frozen=True)
class Ours:
    """The best schedule of a search.

    Attributes:
        cycles: Of the batch.
        megabytes: Moved from and to DRAM.
        cpu_s: Processor seconds of the search.
        bound: Cycles of the tight lower bound, which counts the array's padding as peers' do.
    """

    cycles: float
    megabytes: float
    cpu_s: float
    bound: float


@dataclass(frozen=True)
class Traffic:
    """One row of ``traffic.csv``: the fewest bytes that a machine can move.

    Attributes:
        network: Name of what is computed.
        buffer_kib: Of local memory.
        fusion: Whether results may stay in it for the next layer.
        compulsory: MiB of inputs, weights and outputs.
        theorem: MiB that a theorem says are needed, if there is one.
        optimum: MiB of the best mapping.
        kind: One of :data:`KINDS`.
        source: Who made the figures, and with what.
        command: What makes the optimum again here, if a command does.
    """

    network: str
    buffer_kib: int
    fusion: bool
    compulsory: float
    theorem: float | None
    optimum: float
    kind: str
    source: str
    command: str


@dataclass(frozen=True)
class Search:
    """How ours is tuned.

    Attributes:
        trials: Schedules simulated per network.
        seed: Of the search.
    """

    trials: int = 64
    seed: int = 0


# ------------------------------------------------------------------------------------------- tables


def results(path: Path = RESULTS) -> list[Theirs]:
    """Return the peers' schedules, once more for each further network a row is compared with.

    Raises:
        UsageError: The table cannot be read.
    """
    columns = ("others", "network", "batch", "cycles", "megabytes", "cpu_s", "bound", "command")
    return [row for cells in read_table(path, columns) for row in _theirs(cells)]


def _theirs(cells: dict[str, str]) -> Iterator[Theirs]:
    for name in (cells["network"], *cells["others"].split()):
        yield Theirs(
            cells["peer"], cells["machine"], name, int(number(cells, "batch")), cells["what"],
            _figure(cells, "cycles"), _figure(cells, "megabytes"), _figure(cells, "cpu_s"),
            _figure(cells, "bound"), cells["kind"], cells["source"], cells["command"],
            name == cells["network"],
        )  # fmt: skip


def traffic(path: Path = TRAFFIC) -> list[Traffic]:
    """Return the rows of optimal traffic.

    Raises:
        UsageError: The table cannot be read.
    """
    columns = ("local_buffer_kib", "fusion", "compulsory_mib", "theorem_mib", "optimum_mib")
    return [
        Traffic(
            cells["network"], int(number(cells, "local_buffer_kib")), cells["fusion"] == "allowed",
            number(cells, "compulsory_mib"), _figure(cells, "theorem_mib"),
            number(cells, "optimum_mib"), cells["kind"], cells["source"], cells["command"],
        )
        for cells in read_table(path, columns)
    ]  # fmt: skip


def _figure(cells: dict[str, str], column: str) -> float | None:
    return number(cells, column) if cells[column] else None


# --------------------------------------------------------------------------------------------- ours


def machine(name: str) -> Target:
    """Return the target of a row.

    Raises:
        UsageError: There is none of the name.
    """
    if name.startswith(QUAD_CORE):
        return quad_core.machine(name.removeprefix(QUAD_CORE))
    file = TARGETS / f"{name.removesuffix(IM2COL)}.yaml"
    if not file.exists():
        known = [path.stem for path in TARGETS.glob("*.yaml")]
        raise UsageError(f"no machine is called '{name}'", hint=did_you_mean(name, known))
    target = load_target(file)
    if not name.endswith(IM2COL):
        return target
    matrix = dataclasses.replace(target.matrix, im2col=True)
    return dataclasses.replace(target, name=name, matrix=matrix)


def one_core(kib: int) -> Target:
    """Return AccelForge's core with a buffer of some KiB, split as that of the file."""
    target = machine("one-core")
    whole = target.lb.capacity + target.lb.weight_capacity
    capacity = target.lb.capacity * kib * 1024 // whole
    buffer = dataclasses.replace(
        target.lb, capacity=capacity, weight_capacity=kib * 1024 - capacity
    )
    return dataclasses.replace(target, name=f"one-core-{kib}", lb=buffer)


@cache
def tuned(machine_name: str, name: str, batch: int, search: Search) -> Ours:
    """Return what a search in one process finds for a network on a machine."""
    target = machine(machine_name)
    best, seconds = _searched(target, name, batch, search, "latency")
    cycles = best.latency * target.clock
    bound = (best.tight_fraction or best.bound_fraction) * cycles
    return Ours(cycles, best.ddr_bytes / 1e6, seconds, bound)


def fewest_mib(row: Traffic, search: Search) -> float:
    """Return the MiB that our schedule with the least traffic moves."""
    target = one_core(row.buffer_kib)
    if row.fusion:
        best, _ = _searched(target, row.network, 1, search, "ddr-bytes")
        return best.ddr_bytes / MIB
    return min(_one_kernel_a_layer(target, row.network)) / MIB


def _one_kernel_a_layer(target: Target, name: str) -> Iterator[int]:
    """Yield the bytes moved by schedules that keep nothing for the next layer."""
    evaluator = Evaluator(network(name, 1), target, DTYPE)
    for divisor in TILE_DIVISORS:
        knobs = Knobs(max_layers=1, output_scope="DDR", tile_subdivision=divisor)
        if isinstance(found := evaluator.evaluate(knobs), Measurement):
            yield found.ddr_bytes


def _searched(
    target: Target, name: str, batch: int, search: Search, objective: str
) -> tuple[Measurement, float]:
    """Tune a network; return the best measurement and the processor seconds of the search."""
    graph = network(name, batch)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = autoturbo.tune(
            graph, target, dtype=DTYPE, objective=objective, trials=search.trials,
            seed=search.seed, jobs=1, progress=False, database=Path(folder) / "autoturbo.db",
            runs_folder=folder,
        )  # fmt: skip
    best, seconds = found.best.measurement, time.process_time() - start
    print(f"{target.name} {name} ({batch}): {best!r}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return best, seconds


# ------------------------------------------------------------------------------------------- output

HEAD = (
    "peer", "machine", "network", "batch", "schedule", "theirs kcycles", "ours", "ours/theirs",
    "of their bound", "of ours", "MB theirs", "ours", "CPU s theirs", "ours",
)  # fmt: skip

TRAFFIC_HEAD = (
    "network", "KiB", "fusion", "compulsory MiB", "theorem", "optimum", "ours", "ours/optimum",
)  # fmt: skip

SHORTEST = 1.0 - 1e-3
"""Ours over an optimum below this contradicts it: the simulator moves fewer bytes than it must."""


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _over(figure: float, reference: float | None) -> float | None:
    return figure / reference if reference else None


def _cells(theirs: Theirs, ours: Ours) -> tuple[object, ...]:
    """Return a row for people; bounds are shown as the share that each reaches of its own."""
    reached = _over(theirs.bound, theirs.cycles) if theirs.bound else None
    return (
        theirs.peer, theirs.machine, theirs.network, theirs.batch, theirs.what,
        _shown(theirs.cycles and theirs.cycles / 1e3, ",.0f"), f"{ours.cycles / 1e3:,.0f}",
        _shown(_over(ours.cycles, theirs.cycles), ".2f"),
        _shown(reached, ".0%"), f"{ours.bound / ours.cycles:.0%}",
        _shown(theirs.megabytes, ".1f"), f"{ours.megabytes:.1f}",
        _shown(theirs.cpu_s, ".0f"), f"{ours.cpu_s:.0f}",
    )  # fmt: skip


def traffic_cells(row: Traffic, ours: float) -> tuple[object, ...]:
    """Return a row for people; fewer bytes than the optimum are called impossible.

    Args:
        row: What was published.
        ours: MiB that our schedule moves.

    Returns:
        The cells below :data:`TRAFFIC_HEAD`.
    """
    ratio = ours / row.optimum
    mark = " impossible" if ratio < SHORTEST else ""
    return (
        row.network, row.buffer_kib, "allowed" if row.fusion else "none", f"{row.compulsory:.1f}",
        _shown(row.theorem, ".1f"), f"{row.optimum:.1f}", f"{ours:.1f}", f"{ratio:.2f}{mark}",
    )  # fmt: skip


def means(pairs: Iterable[tuple[Theirs, Ours]]) -> dict[str, tuple[float, int]]:
    """Return the geometric mean of ours over theirs on the same work, and its rows, by schedule."""
    ratios: dict[str, list[float]] = {}
    for theirs, ours in pairs:
        if theirs.cycles and theirs.same_work:
            name = f"{theirs.peer}, {theirs.what}, {theirs.kind}"
            ratios.setdefault(name, []).append(ours.cycles / theirs.cycles)
    return {
        name: (math.exp(sum(map(math.log, found)) / len(found)), len(found))
        for name, found in ratios.items()
    }


def print_results(pairs: Sequence[tuple[Theirs, Ours]]) -> None:
    """Print the table of schedules and the means."""
    print_table(HEAD, (_cells(theirs, ours) for theirs, ours in pairs))
    print()
    for name, (mean, count) in means(pairs).items():
        print(f"ours over {name}: geometric mean {mean:.2f} of {count}")


def print_traffic(pairs: Iterable[tuple[Traffic, float]]) -> None:
    """Print the table of optimal traffic."""
    print_table(TRAFFIC_HEAD, (traffic_cells(row, ours) for row, ours in pairs))


def _json(
    search: Search,
    schedules: Iterable[tuple[Theirs, Ours]],
    moved: Iterable[tuple[Traffic, float]],
) -> str:
    found = {
        "search": dataclasses.asdict(search),
        "results": [
            {"theirs": dataclasses.asdict(theirs), "ours": dataclasses.asdict(ours)}
            for theirs, ours in schedules
        ],
        "traffic": [dataclasses.asdict(row) | {"ours": ours} for row, ours in moved],
    }
    return json.dumps(found, indent=2)


# ------------------------------------------------------------------------------------- command line


def _chosen(options: argparse.Namespace) -> tuple[list[Theirs], list[Traffic]]:
    """Return the rows that the options name.

    Raises:
        UsageError: There are none.
    """
    peers, machines, networks, batches = (
        None if given is None else given.split(",")
        for given in (options.peers, options.machines, options.networks, options.batches)
    )

    def wanted(peer: str, machine_name: str, name: str, batch: int) -> bool:
        cells = ((peers, peer), (machines, machine_name), (networks, name), (batches, str(batch)))
        return all(given is None or cell in given for given, cell in cells)

    schedules = [r for r in results() if wanted(r.peer, r.machine, r.network, r.batch)]
    moved = [r for r in traffic() if wanted("AccelForge", "one-core", r.network, 1)]
    if not schedules and not moved:
        raise UsageError("no row has all of this", hint=f"see the columns of {RESULTS.name}")
    return schedules, moved


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("peers", "machines", "networks", "batches"):
        parser.add_argument(f"--{name}", metavar="A,B", help="only rows of these")
    parser.add_argument("--trials", type=int, default=Search.trials)
    parser.add_argument("--seed", type=int, default=Search.seed)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, and print the tables."""
    options = _options(arguments)
    search = Search(options.trials, options.seed)
    schedules, moved = _chosen(options)
    pairs = [(r, tuned(r.machine, r.network, r.batch, search)) for r in schedules]
    bytes_moved = [(row, fewest_mib(row, search)) for row in moved]
    if options.json:
        print(_json(search, pairs, bytes_moved))
        return
    if pairs:
        print_results(pairs)
    if bytes_moved:
        print("\n" if pairs else "", end="")
        print_traffic(bytes_moved)


if __name__ == "__main__":
    try:
        main()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
