"""``python -m autoturbo`` is the command ``autoturbo``."""

from __future__ import annotations

import sys

from autoturbo.cli import main

if __name__ == "__main__":
    sys.exit(main())
