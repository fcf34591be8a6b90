"""List the operators that can be split, and those that are written out in others.

What is in neither list is opaque: it runs alone, on a whole cluster.
"""

from __future__ import annotations

import argparse
from typing import Final

from autoturbo.commands.console import Console
from autoturbo.commands.parser import Parser
from autoturbo.schema import TypedDict

USAGE = "[--domain DOMAIN]"
EXAMPLE = "autoturbo operators --domain com.microsoft"


class OperatorsLine(TypedDict):
    """The operators that can be split, and those that are written out in others."""

    split: list[str]
    written_out: list[str]


LINES: Final = {"": OperatorsLine}


def add_arguments(parser: Parser) -> None:
    """Which of them."""
    text = "only those of a domain; 'ai.onnx' is ONNX's own (default: of every domain)"
    parser.add_argument("--domain", metavar="DOMAIN", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print both lists."""
    from autoturbo.graph.expand import EXPANSIONS
    from autoturbo.graph.operator_table import ROWS

    found = {
        name: sorted((domain or "ai.onnx", kind) for domain, kind in known)
        for name, known in (("split", ROWS), ("written_out", EXPANSIONS))
    }
    asked = {
        name: [f"{domain}.{kind}" for domain, kind in known if options.domain in (None, domain)]
        for name, known in found.items()
    }
    console.emit(asked)
    for name, known in asked.items():
        console.answer(f"{name.replace('_', ' ')} ({len(known)}): {', '.join(known) or 'none'}")
    return 0
