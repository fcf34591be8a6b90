"""Libraries that AutoTurbo uses where they are installed, and how to install them."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LIBRARIES = {
    "parquet": "pyarrow>=17",
    "plots": "matplotlib>=3.9",
    "ray": "ray>=2.40",
    "report": "vl-convert-python>=1.9,<2",
    "samplers": "cmaes>=0.10",
    "verify": "onnxruntime>=1.20",
}
"""What each extra of ``pyproject.toml`` for users brings."""


def how_to_install(extra: str) -> str:
    """Return a hint with the command that installs an extra.

    AutoTurbo is on no package index: the command names the folder, the archive or the repository
    that it was installed from, and where nobody knows of one that is still there, the library.

    Args:
        extra: One of :data:`LIBRARIES`.
    """
    return f"install it with: pip install {_from_its_origin(extra) or _quoted(LIBRARIES[extra])}"


def _quoted(text: str) -> str:
    """Return a word as every shell takes it, that of Windows too."""
    return f'"{text}"'


def _from_its_origin(extra: str) -> str | None:
    """Return what pip is to install where AutoTurbo comes from; None where that is not known."""
    try:
        found = importlib.metadata.distribution("autoturbo")
    except importlib.metadata.PackageNotFoundError:
        return None
    origin: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    url, folder = str(origin.get("url", "")), _path_of(str(origin.get("url", "")))
    if not url or (folder is not None and not folder.exists()):
        return None
    editable = bool(origin.get("dir_info", {}).get("editable"))
    package = folder / "autoturbo" if folder and editable else found.locate_file("autoturbo")
    if Path(str(package)).resolve() != Path(__file__).resolve().parent:
        return None  # another AutoTurbo is installed than the one that runs
    if "dir_info" in origin and folder is not None:
        place = "." if folder.resolve() == Path.cwd() else str(folder)
        return ("-e " if editable else "") + _quoted(f"{place}[{extra}]")
    version = origin.get("vcs_info", {})
    if version:
        url = f"{version['vcs']}+{url}@{version['commit_id']}"
    if within := origin.get("subdirectory"):
        url += f"#subdirectory={within}"
    return _quoted(f"autoturbo[{extra}] @ {url}")


def _path_of(url: str) -> Path | None:
    """Return the path of a file's URL; None for the URL of something else."""
    from urllib.request import url2pathname

    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None
