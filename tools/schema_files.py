"""Write the published JSON schemas, ``docs/schemas/*.schema.json``, or check that they are current.

::

    python tools/schema_files.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autoturbo.commands.upkeep.db import published_schemas

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"


def main() -> int:
    """Write or check; 1 where a file is not current."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for name, schema in published_schemas().items():
        file, text = FOLDER / f"{name}.schema.json", json.dumps(schema, indent=1) + "\n"
        if options.check and (not file.exists() or file.read_text(encoding="utf-8") != text):
            stale.append(file.name)
        elif not options.check:
            file.write_text(text, encoding="utf-8")
    if stale:
        print(f"{', '.join(stale)}: not current; run {Path(__file__).name}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
