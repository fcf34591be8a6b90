"""Signals that end what is going on, all as Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from autoturbo.errors import AutoTurboError, InterruptedRunError

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, the request to end, and the end of the terminal. Windows has no third one."""

Handler = Callable[[int, FrameType | None], object]


_came = threading.Event()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise the exception of Ctrl-C."""
    del number, frame
    _came.set()
    raise KeyboardInterrupt


def check() -> None:
    """Raise a Ctrl-C again that was lost: imports of other packages may swallow exceptions."""
    if _came.is_set():
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Let ending signals raise the exception of Ctrl-C; without a traceback if it is lost.

    What fails because it was lost ends as it would have: LLVM, interrupted, has no code to give.

    Raises:
        AutoTurboError: What the block raises, unchanged.
        KeyboardInterrupt: A signal came, though the block failed with something else for it.
    """
    _came.clear()
    before = sys.unraisablehook

    def tell(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)

    sys.unraisablehook = tell
    try:
        with handled_by(interrupt):
            yield
    except AutoTurboError:
        raise
    except Exception as error:
        if _came.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = before
        _came.clear()


@contextmanager
def telling(message: str, hint: str) -> Iterator[None]:
    """Say what an interrupted block leaves, and how to go on.

    Raises:
        InterruptedRunError: In place of ``KeyboardInterrupt``.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(message, hint=hint) from None


@contextmanager
def deferred() -> Iterator[None]:
    """Let ending signals wait for the end of a short block, which is then done as a whole."""
    came: list[int] = []
    with handled_by(lambda number, _: came.append(number), ending_here()):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def handled_by(
    handler: Handler, numbers: tuple[int, ...] = ENDING, *, ignored: tuple[int, ...] = ()
) -> Iterator[None]:
    """Handle signals within a block; outside of the main thread nothing changes.

    Args:
        handler: What is called.
        numbers: The signals. One that is ignored stays so: ``nohup`` ignores SIGHUP.
        ignored: Signals that are handled even where they were ignored.
    """
    here = threading.current_thread() is threading.main_thread()
    before = {n: signal.getsignal(n) for n in numbers} if here else {}
    try:
        for number, old in before.items():
            if old is not signal.SIG_IGN or number in ignored:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def ending_here() -> tuple[int, ...]:
    """Return the signals that end this program's work as Ctrl-C does: always Ctrl-C itself.

    The others where the command line has said so; elsewhere they are the business of whoever
    imports the package.
    """
    return tuple(n for n in ENDING if n == signal.SIGINT or signal.getsignal(n) is interrupt)
