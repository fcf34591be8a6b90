"""What a shell is offered while a command is typed.

The work is argcomplete's, which knows how shells ask and quote. What arguments take is found by how
the help calls them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from autoturbo.commands.flag_values import ManyOf, OneOf
from autoturbo.commands.parser import DEFAULT_DATABASE, Parser
from autoturbo.report.units import plain

Offer = Callable[..., Iterable[str] | Mapping[str, str]]
"""An argparse completer: names, or what they mean by name."""


def complete(parser: Parser) -> None:
    """Answer the shell that asks, and end the process."""
    import argcomplete

    for action in _actions(parser):
        offer = _offer(action)
        if offer is not None:
            action.completer = offer  # type: ignore[attr-defined]  # argcomplete reads it there
    argcomplete.autocomplete(parser, always_complete_options=False)


def _actions(parser: Parser) -> Iterator[argparse.Action]:
    """Yield the arguments of all commands."""
    for action in parser._actions:  # noqa: SLF001  argparse shows them nowhere else
        yield action
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from _actions(inner)


def _offer(action: argparse.Action) -> Offer | None:
    """Return what an argument is completed to; None leaves files to the shell."""
    kind = action.type.each if isinstance(action.type, ManyOf) else action.type
    if isinstance(kind, OneOf):
        names = kind.names
        return lambda **_: names()
    return _OFFERS.get(action.dest) or _OFFERS.get(str(action.metavar))


def _models(prefix: str, **_: Any) -> list[str]:
    from autoturbo.datasets import workloads

    return [*workloads.names(), *_files(prefix, (".onnx",))]


def _targets(prefix: str, **_: Any) -> list[str]:
    from autoturbo.hardware import preset_names
    from autoturbo.hardware.machine_files import machine_names

    return [*preset_names(), *machine_names(), *_files(prefix, (".yaml", ".yml", ".json"))]


def _runs(parsed_args: argparse.Namespace, **_: Any) -> dict[str, str]:
    from autoturbo.database.opening import recent_runs

    path = getattr(parsed_args, "db", None) or os.environ.get("AUTOTURBO_DB") or DEFAULT_DATABASE
    return {run: plain(what) for run, what in recent_runs(path).items()}


def _runs_or_files(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return [*_runs(parsed_args), *_files(prefix, (".json",))]


def _commands(**_: Any) -> tuple[str, ...]:
    from autoturbo.commands.upkeep.output_schemas import schema_names

    return tuple(dict.fromkeys(name.split()[0] for name in schema_names()))


def _files(prefix: str, suffixes: tuple[str, ...]) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter(suffixes)(prefix))


_OFFERS: dict[str, Offer] = {
    "MODEL": _models,
    "T": _targets,
    "TARGET": _targets,
    "RUN": _runs,
    "A": _runs_or_files,
    "B": _runs_or_files,
    "names": _commands,
}
"""Offers by what the help calls an argument, or by its name in the options if that says more."""
