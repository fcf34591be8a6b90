"""What a page may do: run its own scripts, named by their hashes, and nothing else."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_NOTHING_ELSE: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def policy(*scripts: str, live: bool = False) -> str:
    """Return the content security policy of a page.

    Args:
        scripts: Texts of the scripts that may run; without one, none may.
        live: The page may listen to the server that it came from.
    """
    parts = [_NOTHING_ELSE]
    if scripts:
        parts.append(f"script-src {' '.join(map(_digest, scripts))}")
    if live:
        parts.append("connect-src 'self'")
    return "; ".join(parts)


def _digest(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
