"""The command line, thin: parse, call, print; every error is one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.console import Console
from autoturbo.commands.parser import parse
from autoturbo.commands.registry import COMMANDS, build_parser
from autoturbo.errors import AutoTurboError, InterruptedRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


class InternalError(AutoTurboError):
    """An exception that nobody foresaw."""

    kind = "internal"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status.

    0: done; 1: the work failed; 2: bad input or usage; 3: no feasible schedule; 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return _report(InterruptedRunError("interrupted"), arguments)
    except AutoTurboError as error:
        return _report(error, arguments)
    except MemoryError as error:
        return _report(_no_memory(), arguments, error)
    except Exception as error:  # noqa: BLE001 - the last resort: one line, not a traceback
        return _report(_internal(error), arguments, error)
    return status


def _run(arguments: Sequence[str]) -> int:
    _check_docstrings()
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        from autoturbo.commands.completing import complete

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
    return COMMANDS[options.command].run(options, console)


def _report(error: AutoTurboError, arguments: Sequence[str], cause: Exception | None = None) -> int:
    """Print an error where its reader looks for it; its exit status."""
    from autoturbo.report.units import plain

    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    with contextlib.suppress(BrokenPipeError):
        if "--debug" in given:
            _print_traceback(cause or error)
        if "--json" in given:
            print(json.dumps({"error": error.as_json()}), flush=True)
        else:
            print(f"error: {plain(error)}", file=sys.stderr, flush=True)
    return error.exit_status


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error, file=sys.stderr)


def _internal(error: Exception) -> InternalError:
    what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    return InternalError(f"internal: {what}", hint="run again with --debug")


def _no_memory() -> AutoTurboError:
    hint = "raise the limit (ulimit -v, the container) or give a smaller batch or fewer jobs"
    return AutoTurboError("there is not enough memory for this", hint=hint)


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
        UsageError: it has been deleted.
    """
    try:
        Path.cwd()
    except OSError:
        hint = "go to a folder that exists"
        raise UsageError("the working folder has been deleted", hint=hint) from None


def _print_anything() -> None:
    """Names that the terminal's encoding lacks are shown as escapes, never as an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reader_left() -> int:
    """Whoever read our output has closed it: nothing more to say, also not at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


if __name__ == "__main__":
    sys.exit(main())
