"""Third-party models from file to applied file: every step a user takes, on each of them.

``inspect``, ``tune --trials 16`` on two targets and one machine, ``verify`` and ``apply``; then the
applied file beside the original in ONNX Runtime, on the same random inputs. A step is ``ok``, or
the status and the line that it ended with. Status 1 is never right, and 2 only where the model says
so (``refused``).

::

    python benchmarks/zoo.py [NAME ...] [--bundled] [--folder DIR] [--trials 16]

``--bundled`` adds the workloads of the package, ``--folder`` all ONNX files of a folder (``none``
as a name leaves the zoo's own models out). Weights that are not beside a file are drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
import zoo_modern  # noqa: F401  registers its models
from bench_tools import print_table
from zoo_models import ZOO

from autoturbo.cli import main as autoturbo
from autoturbo.datasets import workloads
from autoturbo.verifier.random_values import random_inputs, seeded_weights, with_weights

PLACES = ("stcp920", "mlu100", "zcu102-vta")
"""Two targets and a machine."""

OK = "ok"
NO_NUMBERS = "--no-numbers"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a model.

    Attributes:
        name: Of the model.
        quirk: What it is there for.
        steps: Per step, ``ok`` or what it ended with.
        right: Whether that is what it should be.
    """

    name: str
    quirk: str
    steps: dict[str, str]
    right: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A model to try: its file, and what the zoo says of it."""

    name: str
    quirk: str
    file: Path
    flags: tuple[str, ...] = ()
    refused: str = ""
    runs: bool = True


def attempt(*arguments: str | Path) -> tuple[int, str]:
    """Run one command in this process; give its status and the last line of its errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = autoturbo([str(argument) for argument in arguments])
    lines = err.getvalue().strip().splitlines()
    return status, lines[-1] if lines else ""


def try_out(entry: Entry, trials: int) -> Outcome:
    """Take a model through all steps, in the working folder."""
    steps: dict[str, str] = {}

    def step(name: str, *arguments: str | Path) -> bool:
        status, line = attempt(*arguments, *entry.flags)
        steps[name] = OK if status == 0 else f"{status}: {line}"
        return status == 0

    if not step("inspect", "inspect", entry.file):
        refused = entry.refused and entry.refused in steps["inspect"]
        right = bool(refused) and steps["inspect"].startswith("2:")
        return Outcome(entry.name, entry.quirk, steps, right)
    for place in PLACES:
        run = ("tune", entry.file, "--target", place, "--trials", str(trials), "--no-progress")
        step(place, *run)
    first = PLACES[0]
    step("verify", "verify", entry.file, "--target", first, *([] if entry.runs else [NO_NUMBERS]))
    applied = Path(f"{entry.name}.applied.onnx")
    if step("apply", "apply", entry.file, "--target", first, "-o", applied) and entry.runs:
        steps["equal"] = equal(entry, applied)
    right = not entry.refused and all(value == OK for value in steps.values())
    return Outcome(entry.name, entry.quirk, steps, right)


def equal(entry: Entry, applied: Path) -> str:
    """Say ``ok``, or how an applied file differs from the original in ONNX Runtime."""
    scheduled = onnx.load(applied, load_external_data=False)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in scheduled.graph.input}  # fmt: skip
    original = onnx.load(entry.file, load_external_data=False)
    feeds = random_inputs(original, 0, shapes)
    for name, value in _given(entry.flags):
        feeds[name] = np.asarray(float(value), feeds[name].dtype).reshape(feeds[name].shape)
    try:
        wanted = _session(entry.file).run(None, feeds)
    except Exception as error:  # noqa: BLE001  the original's own trouble
        return f"the original does not run: {error}"
    session = _session(applied)
    taken = {value.name for value in session.get_inputs()}
    found = session.run(None, {name: v for name, v in feeds.items() if name in taken})
    for one, other in zip(wanted, found, strict=True):
        near = 1e-4 * max(1.0, float(np.abs(np.asarray(one, float)).max(initial=0.0)))
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-3, atol=near):
            return f"differs: {np.abs(np.asarray(one, float) - np.asarray(other, float)).max():g}"
    return OK


def told(entry: Entry, outcome: Outcome) -> Outcome:
    """Return an outcome, said on the error stream at once; what was written for it is removed."""
    for file in (*Path().glob(f"{entry.name}.*"), *Path().glob(f"runs/{entry.name}-*/*")):
        file.unlink()
    wrong = "" if outcome.right else f": {outcome.steps}"
    print(f"{outcome.name} {'right' if outcome.right else 'not right'}{wrong}", file=sys.stderr)
    return outcome


def _given(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    for flag, value in itertools.pairwise(flags):
        if flag == "--value":
            name, _, figure = value.partition("=")
            yield name, figure


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def entries(names: Sequence[str], *, bundled: bool = False, files: str = "") -> Iterator[Entry]:
    """Write the zoo's models into the working folder, and list what else is asked for."""
    for model in ZOO.values():
        if not names or model.name in names:
            file = Path(f"{model.name}.onnx")
            onnx.save(model.build(), file)
            yield Entry(model.name, model.quirk, file, model.flags, model.refused, model.runs)
    for name in workloads.names() if bundled else ():
        yield Entry(name, "bundled workload", with_data(workloads.get(name).file))
    for file in sorted(Path(files).glob("*.onnx")) if files else ():
        yield Entry(file.stem, "of the folder", with_data(file))


def with_data(file: Path) -> Path:
    """Return a file that ONNX Runtime can run: where data are missing, a copy with random ones."""
    model = onnx.load(file, load_external_data=False)
    outside = {e.value for t in model.graph.initializer for e in t.external_data
               if e.key == "location"}  # fmt: skip
    if all((file.parent / name).exists() for name in outside):
        return file
    weights = seeded_weights(model, Path(), 0, f"{file.stem}.data")
    onnx.save(with_weights(model, weights), file.name)
    return Path(file.name)


def main() -> None:
    """Print a row for every model, and how many came out right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--bundled", action="store_true")
    parser.add_argument("--folder", default="")
    parser.add_argument("--trials", type=int, default=16)
    options = parser.parse_args()
    folder = str(Path(options.folder).resolve()) if options.folder else ""
    with TemporaryDirectory() as working:
        os.chdir(working)
        listed = entries(options.names, bundled=options.bundled, files=folder)
        found = [told(entry, try_out(entry, options.trials)) for entry in listed]
    columns = ("inspect", *PLACES, "verify", "apply", "equal")
    rows = [
        [one.name, *(one.steps.get(c, "-").partition(":")[0] for c in columns), one.quirk]
        for one in found
    ]
    print_table(("model", *columns, "what it is there for"), rows)
    right = sum(one.right for one in found)
    print(f"{right} of {len(found)} models came out right")
    for one in found:
        if not one.right:
            wrong = [f"{step}: {line}" for step, line in one.steps.items() if line != OK]
            print(f"not right: {one.name}:", *wrong, sep="\n    ")


if __name__ == "__main__":
    main()
