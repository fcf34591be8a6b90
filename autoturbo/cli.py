"""The command line, thin: parse, call, print; every error is one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if __name__ == "__main__":  # signals first, then everything else, as for the script
    import runpy

    runpy.run_module("autoturbo", run_name="__main__")

from autoturbo.commands.console import Console, ErrorLine, LiveLine, fault_json
from autoturbo.commands.parser import parse
from autoturbo.commands.registry import COMMANDS, build_parser
from autoturbo.errors import AutoTurboError, InterruptedRunError, OutputStreamError, UsageError
from autoturbo.passwords import without_secrets
from autoturbo.signals import interruptible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FIRST_FREE = 3
"""The least number of a file that is none of the three standard ones."""


class InternalError(AutoTurboError):
    """An exception that nobody foresaw."""

    kind = "internal"


class _Stream(io.TextIOBase):
    """A standard stream whose errors are told from those of files.

    Args:
        inner: The stream; None where it was closed when the program began.
        name: The stream's name, for people.
    """

    def __init__(self, inner: TextIO | None, name: str) -> None:
        self.inner, self.name = inner, name
        if isinstance(inner, io.TextIOWrapper):  # names that its encoding lacks
            inner.reconfigure(errors="backslashreplace")

    encoding = property(lambda self: getattr(self.inner, "encoding", None) or "utf-8")

    def write(self, text: str) -> int:
        """Write, or raise an error that says why not."""
        with self._checked() as inner:
            return inner.write(text)

    def flush(self) -> None:
        """Flush, or raise an error that says why not."""
        if self.inner is not None:  # io calls it once more when the object goes
            with self._checked() as inner:
                inner.flush()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self.inner is not None and self.inner.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the stream."""
        return super().fileno() if self.inner is None else self.inner.fileno()

    @contextlib.contextmanager
    def _checked(self) -> Iterator[TextIO]:
        if self.inner is None:
            raise _StreamError(f"cannot write to {self.name}: it is closed")
        try:
            yield self.inner
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise _StreamError(f"cannot write to {self.name}: {reason}") from None


class _StreamError(OSError):
    """A standard stream does not take what is written to it."""


@contextlib.contextmanager
def _standard_streams() -> Iterator[None]:
    """Put checked streams in the place of standard output and standard error.

    The null device stands for one that is closed: the next file that is opened, a database for one,
    would have its number otherwise, and what a library prints would go into it. What cannot be
    written is thrown away in the end: Python would try again, and complain.
    """
    with contextlib.suppress(OSError):
        while (handle := os.open(os.devnull, os.O_RDWR)) < _FIRST_FREE:
            os.set_inheritable(handle, True)  # noqa: FBT003  it takes no name
        os.close(handle)
    before = sys.stdout, sys.stderr
    checked = _Stream(before[0], "standard output"), _Stream(before[1], "standard error")
    sys.stdout, sys.stderr = checked
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in checked:
            try:
                stream.flush()
            except (OSError, ValueError):
                with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("w") as none:
                    os.dup2(none.fileno(), stream.fileno())


@_standard_streams()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status. 0: done; 1: the work failed; 2: bad input or usage; 3: no feasible
        schedule; 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with interruptible():
            status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has closed it: nothing more to say
        return 1
    except _StreamError as error:
        hint = "files and the database are whole"
        return _report(OutputStreamError(str(error), hint=hint), arguments)
    except KeyboardInterrupt:
        return _report(InterruptedRunError("interrupted"), arguments)
    except AutoTurboError as error:
        return _report(error, arguments)
    except Exception as error:  # noqa: BLE001 - the last resort: one line, not a traceback
        return _report(_internal(error), arguments, error)
    return status


def _run(arguments: Sequence[str]) -> int:
    if isinstance(sys.stdout, _Stream) and sys.stdout.inner is None:
        raise OutputStreamError("standard output is closed", hint="send it to /dev/null instead")
    _check_docstrings()
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        from autoturbo.commands.upkeep.completers import complete

        complete(parser)  # ends the process
    try:
        options = parse(parser, arguments)
    except SystemExit as stop:  # of --help and --version
        return int(stop.code or 0)
    if options.command is None:
        raise UsageError("no command is given", hint="see 'autoturbo --help'")
    _check_folder()
    verbosity = int(options.verbose) - int(options.quiet)
    console = Console(options.json, verbosity, progress=not options.no_progress)
    with LiveLine(console):
        return COMMANDS[options.command].run(options, console)


def _report(error: AutoTurboError, arguments: Sequence[str], cause: Exception | None = None) -> int:
    """Print an error where its reader looks for it; its exit status."""
    from autoturbo.report.units import plain

    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in given:
        with contextlib.suppress(OSError):
            _print_traceback(cause or error, given)
    if "--json" in given:
        line: ErrorLine = {"error": fault_json(error)}
        shown = json.dumps(line)
    else:
        shown = f"error: {plain(error)}"
    streams = (sys.stdout, sys.stderr) if "--json" in given else (sys.stderr, sys.stdout)
    for stream in streams:  # where one takes nothing, the other one does
        with contextlib.suppress(OSError):
            print(_without_secrets(shown, given), file=stream, flush=True)
            break
    return error.exit_status


def _print_traceback(error: BaseException, arguments: Sequence[str]) -> None:
    import traceback

    shown = "".join(traceback.format_exception(error))
    print(_without_secrets(shown, arguments), file=sys.stderr, end="")


def _without_secrets(text: str, arguments: Sequence[str]) -> str:
    """Remove passwords of URLs that were given where something else was expected."""
    for word in arguments:
        if "://" in word:
            text = without_secrets(text, word.partition("=")[2] if word[:1] == "-" else word)
    return text


def _internal(error: Exception) -> AutoTurboError:
    if isinstance(error, MemoryError):
        hint = "raise the limit (ulimit -v, the container) or give a smaller batch or fewer jobs"
        return AutoTurboError("there is not enough memory for this", hint=hint)
    what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    return InternalError(f"internal: {what}", hint="run again with --debug")


def _check_docstrings() -> None:
    """Refuse to run where Python leaves docstrings out: XGBoost cannot be imported then.

    Raises:
        UsageError: Python was started with ``-OO``.
    """
    if sys.flags.optimize > 1:
        message = "Python leaves docstrings out (-OO, PYTHONOPTIMIZE=2), which XGBoost needs"
        raise UsageError(message, hint="set PYTHONOPTIMIZE=1 or leave it out")


def _check_folder() -> None:
    """Refuse to work where there is no working folder: names of files mean nothing then.

    Raises:
        UsageError: It has been deleted.
    """
    try:
        Path.cwd()
    except OSError:
        hint = "go to a folder that exists"
        raise UsageError("the working folder has been deleted", hint=hint) from None
