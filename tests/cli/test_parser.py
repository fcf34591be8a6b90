"""The parser: one error line, help that reads the same under every Python."""

from __future__ import annotations

import argparse

import pytest

from autoturbo.commands.console import Console
from autoturbo.commands.parser import (
    Actions,
    Parser,
    add_global_options,
    parse,
    takes,
)
from autoturbo.commands.registry import COMMANDS, build_parser
from autoturbo.errors import UsageError


def parser() -> Parser:
    made = Parser(prog="tool")
    made.add_argument("name")
    made.add_argument("-o", "--output", metavar="FILE", help="where to")
    made.add_argument("--many", metavar="N", nargs="*", help="several")
    made.add_argument("--maybe", metavar="X", nargs="?", help="one or none")
    made.add_argument("--on", action="store_true", help="a switch")
    add_global_options(made)
    return made


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: name; see 'tool --help'"),
        (["a", "b"], "unexpected argument 'b'; see 'tool --help'"),
        (["a", "--outptu", "b"], "unknown flag '--outptu'; did you mean '--output'?"),
        (["a", "--out", "b"], "unknown flag '--out'; did you mean '--output'?"),
        (["a", "-x"], "unknown flag '-x'; see 'tool --help'"),
        (["a", "--on=yes"], "--on: ignored explicit argument 'yes'; see 'tool --help'"),
        (["a", "--", "--on"], "unexpected argument '--on'; see 'tool --help'"),
        (["a", "-o"], "--output: expected one argument; see 'tool --help'"),
    ],
)
def test_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(parser(), arguments)
    assert str(raised.value) == message


def test_a_name_that_looks_like_a_flag() -> None:
    assert parse(parser(), ["--on", "--", "--strange-name"]).name == "--strange-name"


def test_help_names_each_value_once() -> None:
    text = parser().format_help()
    assert "  -o, --output FILE  " in text
    assert "  --many [N ...]" in text
    assert "  --maybe [X]" in text
    assert "  --on  " in text


def test_help_has_no_colours() -> None:
    assert "\x1b" not in build_parser().format_help()


def test_help_fits_narrow_and_wide_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, widest in ((76, 76), (80, 80), (200, 100)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = build_parser().format_help().splitlines()
        assert max(map(len, lines)) <= widest


def test_defaults_of_the_global_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTURBO_DB", raising=False)
    options = parse(parser(), ["a"])
    assert (options.db, options.json, options.verbose) == ("autoturbo.db", False, False)
    monkeypatch.setenv("AUTOTURBO_DB", "")
    assert parse(parser(), ["a"]).db == "autoturbo.db"
    monkeypatch.setenv("AUTOTURBO_DB", "mine.db")
    assert parse(parser(), ["a"]).db == "mine.db"


def test_actions() -> None:
    made = Parser(prog="my tool")

    action = Actions()

    @action("my tool go now", dict, takes("file"), usage="FILE")
    def go(_options: argparse.Namespace, _console: object) -> int:
        """Go there."""
        return 3

    @action("my tool halt", dict)
    def stop(_options: argparse.Namespace, _console: object) -> int:
        """Stop."""
        return 4

    action.add_arguments(made)
    options = parse(made, ["go", "x", "--json"])
    assert (options.action, options.file, options.json) == ("go", "x", True)
    assert action.run(options, Console()) == 3
    text = options.parser.format_help()
    assert text.startswith("usage: my tool go FILE\n\nGo there.\n")
    assert text.endswith("example:\n  my tool go now\n")
    with pytest.raises(UsageError, match="unknown command 'my tool hat'; did you mean 'halt'"):
        parse(made, ["hat"])


def test_every_command_says_what_it_is() -> None:
    for name, command in COMMANDS.items():
        line = (command.__doc__ or "").splitlines()[0]
        assert line.endswith(".")
        assert len(line) <= 100
        assert command.EXAMPLE.startswith(f"autoturbo {name}")


def test_examples_of_the_help_are_commands_that_parse() -> None:
    for command in COMMANDS.values():
        words = command.EXAMPLE.split()
        assert words[0] == "autoturbo"
        assert parse(build_parser(), words[1:]).command == words[1]
