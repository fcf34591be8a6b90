"""Print what makes a shell complete commands, flags and names.

A line in the shell's own file runs it: see the help of SHELL.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.console import Console
from autoturbo.commands.parser import OneOf, Parser

USAGE = "SHELL"
EXAMPLE = "autoturbo completion bash"
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: Parser) -> None:
    """The shell."""
    shell = OneOf("SHELL", lambda: SHELLS)
    text = (
        'bash (in ~/.bashrc: eval "$(autoturbo completion bash)"), zsh (likewise, after compinit)'
        " or fish (in config.fish: autoturbo completion fish | source)"
    )
    parser.add_argument("shell", metavar="SHELL", type=shell, help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    script = shellcode(["autoturbo"], shell=options.shell)
    console.emit({"shell": options.shell, "script": script})
    console.document(script)
    return 0
