"""Compare numbers in a process of its own: ONNX Runtime may end the process that it runs in.

Some models end it by a signal, without an exception. A command that checks them goes on, and says
so.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from autoturbo.errors import AutoTurboError
from autoturbo.verifier.findings import Numbers

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import AnySchedule

CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from autoturbo.verifier.apart import answer; answer()"
)
"""Program of the child: it runs no module of the caller again, and imports what the caller can."""


def check_numbers_apart(
    schedule: AnySchedule, path: str | Path, *, seed: int = 0, whole: bool | None = None
) -> Numbers:
    """Run the original and the scheduled model side by side, in a child process.

    Args:
        schedule: The schedule.
        path: The model's file.
        seed: Seed of the random inputs and weights.
        whole: As for :func:`autoturbo.verifier.numbers.check_numbers`.

    Returns:
        What that returns; where the child died, that nothing was compared and of what it died.

    Raises:
        ModelError: The file is not usable.
    """
    with TemporaryDirectory(prefix="autoturbo-apart-") as folder:
        result = Path(folder) / "result"
        task = pickle.dumps(sys.path) + pickle.dumps((schedule, str(path), seed, whole, result))
        done = subprocess.run(  # noqa: S603  our interpreter and our program
            [sys.executable, "-P", "-c", CHILD], input=task, capture_output=True, check=False
        )
        if not result.exists():
            skipped = f"the process that ran ONNX Runtime ended {_end_of(done)}"
            return Numbers(schedule.model.batch, bool(whole), seed, None, skipped=skipped)
        found = pickle.loads(result.read_bytes())  # noqa: S301  our child wrote it
    if isinstance(found, AutoTurboError):
        raise found
    assert isinstance(found, Numbers)  # noqa: S101  for the type checker
    return found


def _end_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return how a process ended: by which signal, or with its last line."""
    if done.returncode < 0:
        return f"with {signal.Signals(-done.returncode).name}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"with status {done.returncode}" + (f": {lines[-1]}" if lines else "")


def answer() -> None:
    """Read a task from standard input, carry it out, and write the result to its file."""
    from autoturbo.verifier.numbers import check_numbers

    task = pickle.load(sys.stdin.buffer)  # noqa: S301  our parent wrote it
    schedule, path, seed, whole, result = task
    try:
        found: Numbers | AutoTurboError = check_numbers(schedule, path, seed=seed, whole=whole)
    except AutoTurboError as error:
        found = error
    draft = result.with_suffix(".draft")
    draft.write_bytes(pickle.dumps(found))
    draft.replace(result)  # a child that dies while it writes has written nothing
