"""Flags of the command line from the fields of a configuration, and the configuration from them."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from autoturbo.commands.flag_values import ManyOf, OneOf, duration, percentage, whole_number, wrong
from autoturbo.commands.parser import Parser
from autoturbo.commands.pin_flags import READERS
from autoturbo.config import (
    STORAGE_VARIABLE,
    ExecutionConfig,
    Group,
    Option,
    ResumeConfig,
    flag_of,
    option_of,
    options_of,
)
from autoturbo.errors import Location, UsageError
from autoturbo.files import read_text

if TYPE_CHECKING:
    import yaml


_ConfigT = TypeVar("_ConfigT", bound="ResumeConfig | ExecutionConfig")

_GLOBAL = "--db"
"""The flag that every command has, wherever it stands on the command line."""

_GROUPS = get_args(Group)
"""Titles of the help, in their order."""

_BEFORE = "as before"
"""The default of a flag of a command that goes on with a run."""


def add_flags(parser: Parser, config: type, *names: str, resuming: bool = False) -> None:
    """Add the flags of a configuration that a parser does not have yet.

    Args:
        parser: The parser of a command.
        config: The configuration's class.
        names: Fields to add flags of; all of them if none is named.
        resuming: The command goes on with runs, whose records have the defaults.
    """
    for name, declared in sorted(options_of(config).items(), key=_place_in_help):
        flag, group = flag_of(declared), option_of(declared).group
        wanted = flag and flag != _GLOBAL and (not names or name in names)
        if group is None or not wanted or flag in parser.flags():
            continue
        kept = issubclass(config, ResumeConfig) or option_of(declared).kept
        usual = _BEFORE if resuming and kept else _default(declared)
        text = option_of(declared).help
        text = f"do not {text}" if declared.default is True else text
        text = f"{text} (default: {usual})" if usual else text
        add = parser.group(group).add_argument
        add(flag, help=text.replace("%", "%%"), **_settings(declared))


def _place_in_help(option: tuple[str, dataclasses.Field[Any]]) -> int:
    """Return the position of an option's group; those of one group stay in their order."""
    group = option_of(option[1]).group
    return _GROUPS.index(group) if group else len(_GROUPS)


def config_of(config: type[_ConfigT], options: argparse.Namespace, **more: Any) -> _ConfigT:
    """Return the configuration that the flags of a command give.

    Args:
        config: The configuration's class.
        options: What was parsed; a flag that the command does not have leaves the default.
        more: Fields that have no flag, and defaults of the command's own.

    Raises:
        UsageError: The file of the runtime environment is none, or it is given without Ray.
    """
    values = {}
    for name, declared in options_of(config).items():
        given = getattr(options, "db" if flag_of(declared) == _GLOBAL else name, None)
        if given is None:
            continue
        kind = option_of(declared).kind
        if kind == "mapping":
            given = _mapping(flag_of(declared), given, options)
        if kind in READERS:
            given = READERS[kind](given)
        values[name] = tuple(dict.fromkeys(given)) if kind == "names" else given
    return config(**{**more, **values})


def execution_of(options: argparse.Namespace, **more: Any) -> ExecutionConfig:
    """Return how a command that begins runs carries them out."""
    found = config_of(ExecutionConfig, options, **more)
    storage = found.storage or os.environ.get(STORAGE_VARIABLE) or None
    return dataclasses.replace(found, storage=storage)


def _settings(declared: dataclasses.Field[Any]) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for a field."""
    what, name = option_of(declared), {"dest": declared.name}
    if what.kind == "switch":
        # None where it is not given, so that resuming keeps what the run has
        return {**name, "action": "store_const", "const": declared.default is not True}
    if what.kind in READERS:
        return {**name, "metavar": what.metavar, "action": "append"}
    settings = {**name, "metavar": what.metavar, "type": _reader(flag_of(declared), what)}
    if declared.name == "ray":
        return {**settings, "nargs": "?", "const": "local"}
    return {**settings, "action": "extend"} if what.kind == "names" else settings


def _default(declared: dataclasses.Field[Any]) -> str:
    """Return what the help says of a default; empty where there is nothing to say."""
    what, value = option_of(declared), declared.default
    if what.usual or value is None or isinstance(value, bool):
        return what.usual
    return str(value) if not isinstance(value, tuple) else ", ".join(value) or "none"


def _reader(flag: str, what: Option) -> Callable[[str], Any]:
    """Return the function that turns the text of a flag into its value."""
    readers: dict[str, Callable[[str], Any]] = {
        "count": whole_number(flag, what.least or 0),
        "seconds": duration(flag),
        "share": percentage(flag),
        "path": str,
        "mapping": Path,
        "text": str,
        "name": OneOf(flag, what.choices),
        "names": ManyOf(OneOf(flag, what.choices), empty=what.least == 0),
    }
    return readers[what.kind]


def _mapping(flag: str, path: Path, options: argparse.Namespace) -> Mapping[str, Any]:
    """Read a file of ``runtime_env``; paths in it are those of this machine.

    Returns:
        The fields of ``runtime_env`` by name, unchecked: Ray judges their values.

    Raises:
        UsageError: It cannot be read, is something else, or there is no Ray.
    """  # noqa: DOC501  wrong() makes the error
    if options.ray is None:
        raise wrong(flag, "only workers of Ray use it", "add --ray")
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):  # a few lines of them stand for gigabytes
                raise yaml.YAMLError("aliases are not allowed; write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            names = [str(key.value) for key, _ in node.value]
            if twice := [name for name, times in Counter(names).items() if times > 1]:
                raise yaml.YAMLError(f"the field {twice[0]!r:.60} is there twice")
            return super().construct_mapping(node, deep)

    try:
        found = yaml.load(read_text(path), Loader)  # noqa: S506  a safe one
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"cannot be read: {reason}", Location(str(path))) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        hint = 'for example {"py_modules": ["autoturbo"], "pip": ["numpy"]}'
        raise UsageError("is not a mapping of names", Location(str(path)), hint)
    return found
