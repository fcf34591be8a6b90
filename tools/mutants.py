"""Tries what the tests catch: random small faults in a package, each against the package's tests.

``python tools/mutants.py schedule --count 15 --seed 1`` changes one expression at a time in a copy
of the tree and runs the fast tier of ``tests/schedule`` and ``tests/test_replay.py`` until the
first failure, then, where nothing failed, the full tier of ``tests/schedule``, which ``--fast``
leaves out. A line a mutant says which test caught it. Mutants that nothing tells from the original
(of messages, of bounds that no input reaches) are not sorted out, so a score is for comparing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LIMIT_S = 1200
"""Seconds after which a run of tests is ended: the mutant hangs, so it is caught."""

COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
COMPUTED = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "+",
    ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: a span of a file and what stands there instead.

    Attributes:
        file: Relative to the root.
        line: From 1.
        start: First byte of the span in the file.
        end: The byte after it.
        text: What takes its place.
    """

    file: Path
    line: int
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """Return the file with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(file: Path) -> list[Mutant]:
    """Return all faults that can be put into a file of the package."""
    source = (ROOT / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _expressions(ast.parse(source)):
        text = _changed(node)
        if text is not None:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            found.append(Mutant(file, node.lineno, start, end, f"({text})"))
    return found


def _expressions(tree: ast.AST) -> list[ast.expr]:
    """Return the expressions that are computed: no annotations, decorators and f-strings."""
    found = []
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if isinstance(child, ast.expr):
                    found.append(child)
                found += _expressions(child)
    return found


def _changed(node: ast.expr) -> str | None:
    """Return the expression with a fault; None if there is none for its kind."""
    text = None
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in COMPARED:
            text = f"{ast.unparse(left)} {COMPARED[type(operator)]} {ast.unparse(right)}"
        case ast.BinOp(left, operator, right) if type(operator) in COMPUTED:
            text = f"({ast.unparse(left)}) {COMPUTED[type(operator)]} ({ast.unparse(right)})"
        case ast.BoolOp(operator, values):
            other = " or " if isinstance(operator, ast.And) else " and "
            text = other.join(f"({ast.unparse(value)})" for value in values)
        case ast.UnaryOp(ast.Not(), operand):
            text = ast.unparse(operand)
        case ast.IfExp(test, body, orelse):
            text = f"{ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)}"
        case ast.Constant(bool() as value):
            text = str(not value)
        case ast.Constant(int() as value):
            text = str(value + 1)
    return text


def importers(file: Path) -> set[Path]:
    """Return the modules that import a module, over others too: theirs may hold it compiled."""
    texts = {f.relative_to(ROOT): f.read_text() for f in (ROOT / "autoturbo").rglob("*.py")}
    found, new = {file}, [file]
    while new:
        name = re.escape(".".join(new.pop().with_suffix("").parts))
        reads = re.compile(rf"(from|import) {name}\b")
        new += [f for f, text in texts.items() if f not in found and reads.search(text)]
        found |= set(new)
    return found


def caught_by(copy: Path, tests: list[str]) -> str | None:
    """Return the first test that fails in a copy of the tree, None if all pass."""
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False,
            timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode in (0, 5):  # 5: no test was selected
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"status {done.returncode}"


def tried(mutant: Mutant, copy: Path, package: str, tiers: int) -> tuple[str, str | None]:
    """Return the tier that catches a mutant, and the test; "none" if nothing does."""
    file = copy / mutant.file
    right = file.read_bytes()
    file.write_bytes(mutant.applied(right))
    forget_compiled(mutant.file, copy)
    try:
        for tier, tests in (
            ("fast", [f"tests/{package}", "tests/test_replay.py"]),
            ("full", ["-m", "full", f"tests/{package}"]),
        )[:tiers]:
            by = caught_by(copy, tests)
            if by is not None:
                return tier, by
        return "none", None
    finally:
        file.write_bytes(right)
        forget_compiled(mutant.file, copy)


def forget_compiled(file: Path, copy: Path) -> None:
    """Delete what a copy of the tree holds compiled of a module, and of those that import it."""
    for one in importers(file):
        for compiled in (copy / "autoturbo").rglob(f"__pycache__/*/*/{one.stem}.*.nb*"):
            compiled.unlink()


def main() -> None:
    """Try some mutants of a package, a line each, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", help="a folder of autoturbo/ and of tests/")
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="the fast tier alone")
    options = parser.parse_args()
    files = sorted((ROOT / "autoturbo" / options.package).rglob("*.py"))
    faults = [mutant for f in files for mutant in mutants_of(f.relative_to(ROOT))]
    chosen = random.Random(options.seed).sample(faults, options.count)  # noqa: S311
    tally = {"fast": 0, "full": 0, "none": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"  # one for all: what is compiled is good at one place alone
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache"))
        for mutant in chosen:
            began = time.monotonic()
            tier, by = tried(mutant, copy, options.package, 1 if options.fast else 2)
            tally[tier] += 1
            was = (ROOT / mutant.file).read_bytes()[mutant.start : mutant.end].decode()
            took = time.monotonic() - began
            where = f"{mutant.file}:{mutant.line}"
            print(f"{tier} {where} {was!r} -> {mutant.text!r}: {by} ({took:.0f} s)", flush=True)
    print(", ".join(f"{tier} {number}" for tier, number in tally.items()), f"of {len(chosen)}")


if __name__ == "__main__":
    main()
