"""Export workloads: ``python -m workload_export [NAME...] [--folder F]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from autoturbo.datasets.workloads import MODELS_FOLDER, get, names
from autoturbo.errors import AutoTurboError


def main(arguments: list[str] | None = None) -> int:
    """Export the named workloads, all of them when none is named; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workload_export")
    parser.add_argument("name", nargs="*", help="workloads to export (default: all)")
    parser.add_argument("--folder", type=Path, default=MODELS_FOLDER, help="where files go")
    options = parser.parse_args(arguments)
    try:
        chosen = [get(name).name for name in options.name or names()]
    except AutoTurboError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    for name in chosen:
        _report(_export(name, options.folder))
    return 0


def _export(name: str, folder: Path) -> Path:
    from workload_export.make import make

    with tempfile.TemporaryDirectory() as scratch:
        return make(name, folder, Path(scratch))


def _report(path: Path) -> None:
    sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
