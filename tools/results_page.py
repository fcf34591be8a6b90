"""Join the recorded tables of ``benchmarks/results`` into ``docs/results.md``.

``--check`` fails if the page is not current. ``--record NAME`` runs NAME's command first and keeps
what it prints. A file holds a title, a sentence, ``Command: `...``` and a table. Blocks of ``text``
are what the command prints; other tables are extracts, which cannot be recorded.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
PRINTED = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^Command: `(.+)`$", re.MULTILINE)
GROUPS = {  # headings of the page, and the files below each
    "Quality of the search": (
        *(
            "tuning",
            "search",
            "tuning-spaces",
            "latency-only",
            "second-network",
            "ablation",
            "first-guess",
        ),
    ),
    "Batches on this computer": ("host",),
    "Error of the cost model": ("cost-model", "cost-model-targets"),
    "Calibration of the simulator": (
        *("calibration", "mappers", "scale-sim", "dram", "wormhole", "wormhole-formulas"),
        *("gemmini", "stream", "stcp920"),
    ),
    "Comparison with other tuners": ("units", "dlfusion", "peers"),
    "Zoo of models": ("zoo", "zoo-networks"),
    "Verification and sweep": ("verification", "sweep"),
    "Cluster and database": ("faults", "workers", "database"),
}
HEAD = """# Results

Written by `python tools/results_page.py`; do not edit. Simulated latencies are deterministic.
[The paper's tables](paper-tables.md) have their own page.
"""


def page() -> str:
    """Join the files and return the page.

    Returns:
        The text of ``docs/results.md``.
    """
    parts = [HEAD]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [f"##{(FOLDER / f'{name}.md').read_text(encoding='utf-8')}" for name in names]
    return "\n".join(parts)


def record(file: Path) -> None:
    """Run a file's command and keep the table that it prints.

    Args:
        file: A file of ``benchmarks/results``.

    Raises:
        SystemExit: If the file's table is not the command's output, or the command fails.
    """
    text = file.read_text(encoding="utf-8")
    command = COMMAND.search(text)
    if command is None or not PRINTED.search(text):
        sys.exit(f"{file}: an extract of the command's output; write it by hand")
    words = ["env", *shlex.split(command[1])]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{command[1]}: exit status {done.returncode}")
    printed = done.stdout.strip("\n")
    text = PRINTED.sub(lambda _: f"```text\n{printed}\n```", text)
    file.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page.

    Args:
        arguments: The command line; by default that of the process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail if the page is not current")
    parser.add_argument("--record", metavar="NAME", choices=sum(GROUPS.values(), ()))
    options = parser.parse_args(arguments)
    if options.check:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    if options.record:
        record(FOLDER / f"{options.record}.md")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
