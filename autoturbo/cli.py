"""The command line, thin: parse, call, print; every error is one line."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.console import Console
from autoturbo.commands.parser import parse
from autoturbo.commands.registry import COMMANDS, build_parser
from autoturbo.commands.streams import (
    StreamError,
    checked_streams,
    refuse_closed,
    show_error,
)
from autoturbo.commands.tuning import LiveLine
from autoturbo.errors import AutoTurboError, InterruptedRunError, UsageError
from autoturbo.files import without_secrets
from autoturbo.signals import interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence


class InternalError(AutoTurboError):
    """An exception that nobody foresaw."""

    kind = "internal"


@checked_streams()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status.

    0: done; 1: the work failed; 2: bad input or usage; 3: no feasible schedule; 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with interruptible():
            status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has closed it: nothing more to say
        return 1
    except StreamError as error:
        return _report(error.explained(), arguments)
    except KeyboardInterrupt:
        return _report(InterruptedRunError("interrupted"), arguments)
    except AutoTurboError as error:
        return _report(error, arguments)
    except Exception as error:  # noqa: BLE001 - the last resort: one line, not a traceback
        return _report(_internal(error), arguments, error)
    return status


def _run(arguments: Sequence[str]) -> int:
    refuse_closed()
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
    with LiveLine(console):
        return COMMANDS[options.command].run(options, console)


def _report(error: AutoTurboError, arguments: Sequence[str], cause: Exception | None = None) -> int:
    """Print an error where its reader looks for it; its exit status."""
    from autoturbo.report.units import plain

    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in given:
        with contextlib.suppress(BrokenPipeError, StreamError):
            _print_traceback(cause or error, given)
    if "--json" in given:
        shown = json.dumps({"error": error.as_json()})
    else:
        shown = f"error: {plain(error)}"
    show_error(_without_secrets(shown, given), on_output="--json" in given)
    return error.exit_status


def _print_traceback(error: BaseException, arguments: Sequence[str]) -> None:
    import traceback

    shown = "".join(traceback.format_exception(error))
    print(_without_secrets(shown, arguments), file=sys.stderr, end="")


def _without_secrets(text: str, arguments: Sequence[str]) -> str:
    """The text without passwords of URLs that were given where something else was expected."""
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
        UsageError: it has been deleted.
    """
    try:
        Path.cwd()
    except OSError:
        hint = "go to a folder that exists"
        raise UsageError("the working folder has been deleted", hint=hint) from None


if __name__ == "__main__":
    sys.exit(main())
