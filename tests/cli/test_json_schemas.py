"""What every command prints under ``--json`` is what its published schema says, errors included."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from jsonschema import Draft202012Validator, FormatChecker

import autoturbo.errors
from autoturbo.cli import InternalError
from autoturbo.commands.console import FaultJson
from autoturbo.commands.parser import Parser
from autoturbo.commands.registry import build_parser
from autoturbo.commands.tuning.tuned_pairs import TunedPair
from autoturbo.commands.upkeep.output_schemas import ERROR, output_schema, schema_names
from autoturbo.errors import AutoTurboError
from autoturbo.search.stopping import Stop
from tests.cli.command_line import Cli, cli_in
from tests.cli.json_runs import RUNS, prepared

Lines = dict[str, list[dict[str, Any]]]


def commands(parser: Parser | None = None, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something by itself."""
    parser = build_parser() if parser is None else parser
    inner = [a.choices for a in parser._actions if hasattr(a.choices, "items")]
    for choices in inner:
        for name, below in dict(choices or {}).items():
            yield from commands(below, (*names, name))
    if not inner:
        yield " ".join(names)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    """All that the commands print, by command."""
    with pytest.MonkeyPatch.context() as patch:
        cli = cli_in(tmp_path_factory.mktemp("json"), patch)
        ids = prepared(cli)
        yield {
            name: [line for text in runs for line in printed(cli, text.format(**ids))]
            for name, runs in RUNS.items()
        }


def printed(cli: Cli, text: str) -> list[dict[str, Any]]:
    ran = cli("--json", "-q", *text.split())
    found = ran.objects
    assert found, (text, ran)
    assert (ran.status in (0, 1)) or "error" in found[-1], (text, ran)
    return found


def is_error(line: dict[str, Any]) -> bool:
    return set(line) == {"error"}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(output_schema(name), format_checker=FormatChecker())


def test_every_command_has_a_schema_and_is_run() -> None:
    """A command that is added needs its types in LINES and runs in json_runs."""
    assert sorted(RUNS) == sorted(commands())
    assert set(schema_names()) == {*commands(), ERROR}


def test_every_schema_is_one() -> None:
    for name in (*RUNS, ERROR):
        schema = output_schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["title"], name
        assert schema["description"].endswith("."), name


@pytest.mark.full
def test_every_line_is_as_its_schema_says(lines: Lines) -> None:
    for name in RUNS:
        results = [line for line in lines[name] if not is_error(line)]
        assert results, name
        for line in results:
            assert [(name, e.message) for e in validator(name).iter_errors(line)] == []


@pytest.mark.full
def test_errors_are_as_their_schema_says(lines: Lines) -> None:
    errors = [line for of in lines.values() for line in of if is_error(line)]
    assert {line["error"]["kind"] for line in errors} >= {"usage", "model", "run", "infeasible"}
    for line in errors:
        assert [e.message for e in validator(ERROR).iter_errors(line)] == []


LOOSE = ("targets schema", "db schema", "schema", "targets show")
"""These print documents that have schemas of their own."""


@pytest.mark.full
def test_nothing_unknown_and_nothing_missing_passes(lines: Lines) -> None:
    optional = {"numbers_skipped", "front"}
    for name in [name for name in RUNS if name not in LOOSE]:
        check = validator(name)
        line = next(line for line in lines[name] if not is_error(line))
        assert not check.is_valid({**line, "unheard_of": 1}), name
        for field in set(line) - optional:
            less = {key: value for key, value in line.items() if key != field}
            assert not check.is_valid(less) or field in OPTIONAL[name], (name, field)


OPTIONAL: dict[str, set[str]] = {name: set() for name in RUNS} | {
    "apply": {"data_files", "missing", "functions", "instances", "nodes", "passes"},
}


@pytest.mark.full
@pytest.mark.parametrize("name", ["tune", "compare", "show", "db list"])
def test_a_measurement_is_strict_wherever_it_stands(name: str, lines: Lines) -> None:
    line = copy.deepcopy(next(line for line in lines[name] if not is_error(line)))
    for measured in measurements(line):
        measured["latency_s"] = 0
    assert not validator(name).is_valid(line)


def measurements(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "bound_fraction" in value:
            yield value
        for inner in value.values():
            yield from measurements(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from measurements(inner)


def test_words_of_the_schemas_are_those_of_the_code() -> None:
    kinds = {InternalError.kind, *(one.kind for one in error_classes(AutoTurboError))}
    assert known(FaultJson, "kind") == kinds
    assert known(TunedPair, "stopped") == {s.value for s in Stop}


def known(kind: Any, field: str) -> set[str]:
    return set(get_type_hints(kind, include_extras=True)[field].__metadata__[0].of)


def error_classes(kind: type[AutoTurboError]) -> Iterator[type[AutoTurboError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == autoturbo.errors.__name__:
            yield from error_classes(below)


def test_the_command_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = cli_in(tmp_path, monkeypatch)
    assert cli("schema").out.split("\n")[:-1] == list(schema_names())
    assert json.loads(cli("schema", "targets", "list").out) == output_schema("targets list")
    assert cli("--json", "schema", "error").object == output_schema("error")
    ran = cli("schema", "tuna")
    assert (ran.status, ran.err) == (2, "error: no schema of 'tuna'; did you mean 'tune'?\n")
