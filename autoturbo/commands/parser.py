"""The parser of the command line: argparse with one located error line in place of its own text.

The types of its arguments (:mod:`autoturbo.commands.flag_values`) raise
:class:`~autoturbo.errors.UsageError` themselves, so that the words do not change with Python's
version.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import wrong
from autoturbo.errors import UsageError, did_you_mean
from autoturbo.version import __version__

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from autoturbo.config import Group


DEFAULT_DATABASE = "autoturbo.db"
_WIDEST = 100

Run: TypeAlias = "Callable[[argparse.Namespace, Console], int]"
"""What does an action; gives the exit status."""
_ABOUT_AN_ARGUMENT = re.compile(r"argument ([^:]+): (.*)", re.DOTALL)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help that reads the same under every Python version: ``-o, --output FILE``."""

    def __init__(self, prog: str) -> None:
        width = min(_WIDEST, shutil.get_terminal_size().columns - 2)
        super().__init__(prog, max_help_position=28, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises :class:`UsageError`."""

    def __init__(self, **settings: Any) -> None:
        # no abbreviations: one would mean something else once there is another flag
        super().__init__(
            formatter_class=HelpFormatter, allow_abbrev=False, add_help=False, **settings
        )
        self.color = False  # Python 3.14 would colour the help
        self.add_argument("-h", "--help", action="help", help="show this help")
        self._titled: dict[str, argparse._ArgumentGroup] = {}

    def group(self, title: Group) -> argparse._ArgumentGroup:
        """Return the flags that the help has under a title."""
        if title not in self._titled:
            self._titled[title] = self.add_argument_group(title)
        return self._titled[title]

    def error(self, message: str) -> NoReturn:
        """Raise an error of one sentence, in place of usage and exit."""
        match = _ABOUT_AN_ARGUMENT.fullmatch(message)
        hint = f"see '{self.prog} --help'"
        if match:
            raise wrong(match[1].split("/")[-1], match[2], hint)
        raise UsageError(message, hint=hint)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help; argparse's own would pass over a full standard output."""
        (file or sys.stderr).write(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = list(action.choices or ())
        if known and value not in known:
            hint = did_you_mean(str(value), known)
            raise UsageError(f"unknown command {f'{self.prog} {value}'!r}", hint=hint)

    def flags(self) -> list[str]:
        """Return every flag that the parser knows."""
        return [flag for action in self._actions for flag in action.option_strings]


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return what was given, with the defaults of the global options filled in.

    Raises:
        UsageError: An argument that there is not, or one that is missing.
    """  # noqa: DOC501  _not_understood() makes the error
    options, unknown = parser.parse_known_args(list(arguments))
    chosen = getattr(options, "parser", parser)
    extra = [argument for argument in unknown if argument != "--"]
    if extra:
        after_dashes = "--" in arguments and extra[0] in arguments[arguments.index("--") :]
        raise _not_understood(extra[0], chosen, positional=after_dashes)
    flags = dict.fromkeys(("json", "verbose", "quiet", "no_progress", "debug"), False)
    database = os.environ.get("AUTOTURBO_DB") or DEFAULT_DATABASE
    for name, value in {"db": database, **flags}.items():
        if not hasattr(options, name):
            setattr(options, name, value)
    return options


def add_global_options(parser: Parser) -> None:
    """Add the options that every command takes, before its name or after it."""
    group = parser.add_argument_group("global options")
    add = group.add_argument
    unset = argparse.SUPPRESS  # so that the inner parser does not overwrite what the outer one read
    database = f"tuned-schedule database (default: {DEFAULT_DATABASE}, or AUTOTURBO_DB)"
    add("--db", metavar="PATH", default=unset, help=database)
    add("--json", action="store_true", default=unset, help="print JSON, one object a line")
    add("-v", "--verbose", action="store_true", default=unset, help="print details as well")
    add("-q", "--quiet", action="store_true", default=unset, help="print only the result")
    add("--no-progress", action="store_true", default=unset, help="show no live line")
    add("--debug", action="store_true", default=unset, help="print a traceback with an error")
    version = f"autoturbo {__version__}"
    add("--version", action="version", version=version, help="show the version")


def add_command(
    names: argparse._SubParsersAction[Parser],
    name: str,
    title: str,
    line: str,
    *,
    example: str,
    usage: str,
) -> Parser:
    """Add a parser below another one, with its one-line help and example; the caller fills it."""
    made = names.add_parser(
        name,
        prog=title,
        usage=f"{title} {usage}".rstrip(),
        help=line.rstrip("."),
        description=line,
        epilog=f"example:\n  {example}",
    )
    made.set_defaults(parser=made)
    return made


def command_line(database: str, *words: str) -> str:
    """Return a command line to be copied, with the database where that is not the usual one."""
    more = () if database == DEFAULT_DATABASE else ("--db", database)
    return shlex.join(["autoturbo", *words, *more])


def _not_understood(argument: str, parser: Parser, *, positional: bool) -> UsageError:
    if positional or not argument.startswith("-"):
        hint = f"see '{parser.prog} --help'"
        return UsageError(f"unexpected argument {argument!r}", hint=hint)
    flag = argument.partition("=")[0]
    close = did_you_mean(flag, parser.flags())
    hint = close if close.startswith("did") else f"see '{parser.prog} --help'"
    return UsageError(f"unknown flag {flag!r}", hint=hint)


def takes(*flags: str, group: Group | None = None, **settings: Any) -> Callable[[Parser], object]:
    """Return a function that adds an argument to a parser, under a title of the help if given."""

    def add(parser: Parser) -> object:
        place = parser.group(group) if group else parser
        return place.add_argument(*flags, **settings)

    return add


class Actions:
    """The actions of a command that has several; functions that are decorated with it.

    The first line of a function's docstring is its help, the third word of its example its name.

    Attributes:
        lines: Types of what they print under ``--json``, by name.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Any] = {}
        self._known: dict[str, tuple[Run, str, str, tuple[Callable[[Parser], object], ...]]] = {}

    def __call__(
        self, example: str, line: Any, *arguments: Callable[[Parser], object], usage: str = ""
    ) -> Callable[[Run], Run]:
        """Return a decorator that makes a function an action of the command.

        Args:
            example: One command line.
            line: Type of what it prints under ``--json``.
            arguments: Add its own arguments to its parser.
            usage: Text that follows its name.
        """

        def add(run: Run) -> Run:
            name = example.split()[2]
            self._known[name], self.lines[name] = (run, example, usage, arguments), line
            return run

        return add

    def add_arguments(self, parser: Parser) -> None:
        """Give a command its actions; which one was chosen is in ``options.action``."""
        names = parser.add_subparsers(
            title="actions", dest="action", metavar="ACTION", required=True
        )
        for name, (run, example, usage, arguments) in self._known.items():
            title, line = f"{parser.prog} {name}", (run.__doc__ or "").splitlines()[0]
            inner = add_command(names, name, title, line, example=example, usage=usage)
            for add in arguments:
                add(inner)
            add_global_options(inner)

    def run(self, options: argparse.Namespace, console: Console) -> int:
        """Run the action that was chosen; return the exit status."""
        return self._known[options.action][0](options, console)
