"""Start-up of the command line: CPU seconds of a fresh process, the least of several.

``python benchmarks/cli_startup.py``
"""

from __future__ import annotations

import resource
import subprocess
import sys

from bench_tools import print_table

COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import autoturbo": ("-c", "import autoturbo"),
    "autoturbo --version": ("-m", "autoturbo", "--version"),
    "autoturbo --help": ("-m", "autoturbo", "--help"),
    "autoturbo tune --help": ("-m", "autoturbo", "tune", "--help"),
    "autoturbo targets list": ("-m", "autoturbo", "targets", "list"),
}
REPEATS = 5
HEAVY = ("numpy", "numba", "onnx", "xgboost", "optuna", "ray", "rich")


def seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds, user and system, of one run of this Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603  our own commands
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy(arguments: tuple[str, ...]) -> str:
    """Return which of the heavy packages a command imports."""
    done = subprocess.run(  # noqa: S603  our own commands
        [sys.executable, "-X", "importtime", *arguments], check=True, capture_output=True, text=True
    )
    lines = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    return ", ".join(name for name in HEAVY if name in lines) or "none"


def main() -> None:
    """Print one row per command and its ratio to a bare interpreter."""
    least = {name: min(seconds(a) for _ in range(REPEATS)) for name, a in COMMANDS.items()}
    bare = least["python -c pass"]
    print_table(
        ("command", "CPU s", "over bare", "imports"),
        [(name, s, s / bare, heavy(COMMANDS[name])) for name, s in least.items()],
    )


if __name__ == "__main__":
    main()
