"""Print the JSON schema of what a command prints with --json.

Without a command: the names of all schemas. ``autoturbo schema error`` is that of errors.
"""

from __future__ import annotations

import argparse
import json

from autoturbo.commands.console import Console
from autoturbo.commands.parser import Parser
from autoturbo.schema import JsonSchema, TypedDict

USAGE = "[COMMAND [ACTION]]"
EXAMPLE = "autoturbo schema targets list"


class NamesLine(TypedDict):
    """The names of the schemas, or one of them."""

    schemas: list[str]


SchemaLine = NamesLine | JsonSchema
LINES = {"": SchemaLine}


def add_arguments(parser: Parser) -> None:
    """Add the command."""
    text = "a command, with its action where it has several, or 'error' (default: list them)"
    parser.add_argument("names", metavar="COMMAND", nargs="*", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print one, or their names."""
    # it reads the list of commands, which this one is part of
    from autoturbo.commands.upkeep.output_schemas import output_schema, schema_names

    if not options.names:
        console.emit(NamesLine(schemas=list(schema_names())))
        for name in schema_names():
            console.answer(name)
        return 0
    found = output_schema(" ".join(options.names))
    console.emit(found)
    console.document(json.dumps(found, indent=2))
    return 0
