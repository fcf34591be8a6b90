"""Print the script that completes commands, flags and names in a shell.

A line in the shell's own file runs it: see the help of SHELL.
"""

from __future__ import annotations

import argparse
from typing import Annotated

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import OneOf
from autoturbo.commands.parser import Parser
from autoturbo.schema import Choice, TypedDict

USAGE = "SHELL"
EXAMPLE = "autoturbo completion bash"
SHELLS = ("bash", "zsh", "fish")


class CompletionLine(TypedDict):
    """The script that makes a shell complete what is typed."""

    shell: Annotated[str, Choice(SHELLS)]
    script: str


LINES = {"": CompletionLine}


def add_arguments(parser: Parser) -> None:
    """Add the shell."""
    shell = OneOf("SHELL", SHELLS)
    text = (
        'bash (in ~/.bashrc: eval "$(autoturbo completion bash)"), zsh (likewise, after compinit)'
        " or fish (in config.fish: autoturbo completion fish | source)"
    )
    parser.add_argument("shell", metavar="SHELL", type=shell, help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    script = shellcode(["autoturbo"], shell=options.shell)
    console.emit(CompletionLine(shell=options.shell, script=script))
    console.document(script)
    return 0
