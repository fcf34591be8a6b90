"""``python -m autoturbo`` and the script ``autoturbo``: signals first, then everything else.

Nothing is imported here that costs time: until the handlers stand, Ctrl-C shows a traceback.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal itself takes longer to load
import os
import sys

_FIELDS = ("file", "line", "field", "hint")


def main() -> int:
    """Run the command line and return the exit status."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows lacks one
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    from autoturbo.cli import main as run

    return run()


def _leave(number: int, frame: object) -> None:
    """End at once: nothing has begun, and an interrupted import may raise anything."""
    del number, frame
    if "--json" in sys.argv:
        rest = "".join(f', "{name}": null' for name in _FIELDS)
        text = '{"error": {"kind": "interrupted", "message": "interrupted"' + rest + "}}\n"
        os.write(1, text.encode())
    else:
        os.write(2, b"error: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
