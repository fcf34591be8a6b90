"""Check the installation: versions, compiled code, Ray, the database."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any, NotRequired

from autoturbo.commands.console import Console, warn
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import opened
from autoturbo.commands.upkeep.db import CountsJson, counted
from autoturbo.errors import AutoTurboError
from autoturbo.extras import LIBRARIES, how_to_install
from autoturbo.report.units import clock
from autoturbo.schema import Natural, TypedDict
from autoturbo.version import __version__

USAGE = "[--warm] [--ray [ADDRESS]] [options]"
EXAMPLE = "autoturbo doctor"
MODEL, TRIALS = "alexnet", 2
"""What is tuned to have everything compiled."""

PACKAGES = (
    *("numpy", "onnx", "numba", "optuna", "rich", "PyYAML", "pydantic"),
    "annotated-types",
    *("argcomplete", "jinja2", "scipy"),
)
"""What has to be installed; xgboost is apart, as either of two packages brings it."""

_OPTIONAL = tuple(requirement.partition(">=")[0] for requirement in LIBRARIES.values())


Finding = TypedDict("Finding", {"ok": bool, "state": str})
"""Whether something is as it should be, in a word or a sentence."""

CacheFinding = TypedDict("CacheFinding", {
    "ok": bool, "state": str, "folder": str, "files": Natural, "bytes": Natural, "writable": bool,
    "compiled": NotRequired[Natural],
})  # fmt: skip
"""Where compiled code is kept, and how much."""

DatabaseFinding = TypedDict("DatabaseFinding", {
    "ok": bool, "state": str, "path": str, "bytes": NotRequired[Natural],
    "integrity": NotRequired[str], "user_version": NotRequired[Natural],
    "journal_mode": NotRequired[str], "sqlite": NotRequired[str], "counts": NotRequired[CountsJson],
})  # fmt: skip
"""What SQLite says of the database, and how much is in it."""


class DoctorLine(TypedDict):
    """What AutoTurbo stands on."""

    ok: bool
    versions: dict[str, Any]
    cache: CacheFinding
    ray: Finding
    database: DatabaseFinding


LINES = {"": DoctorLine}


def add_arguments(parser: Parser) -> None:
    """Add whether to compile ahead, and whether to connect to a cluster."""
    text = "compile ahead all that 'tune', 'verify' and 'explain' would compile first"
    parser.add_argument("--warm", action="store_true", help=text)
    text = "connect to a cluster, or start a local one without ADDRESS"
    parser.add_argument("--ray", metavar="ADDRESS", nargs="?", const="local", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print every finding; status 1 if something is wrong."""
    compiled = _warmed(console) if options.warm else None
    versions, cache, ray = _versions(), _cache(), _ray(options.ray)
    database = _database(options.db)
    if compiled is not None:
        cache["compiled"] = compiled
    healthy = bool(versions["ok"] and cache["ok"] and ray["ok"] and database["ok"])
    line: DoctorLine = {
        "ok": healthy, "versions": versions, "cache": cache, "ray": ray, "database": database,
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        _print(line, console)
    return 0 if healthy else 1


def _versions() -> dict[str, Any]:
    needed = {name: _version(name) for name in PACKAGES}
    # either package brings the module; the one without CUDA is what we ask for
    needed["xgboost"] = _version("xgboost-cpu") or _version("xgboost")
    return {
        "ok": all(needed.values()),
        "autoturbo": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        **{name: version or "missing" for name, version in needed.items()},
        **{name: _version(name) or "not installed" for name in _OPTIONAL},
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cache() -> CacheFinding:
    """Return where compiled code is kept, and how much."""
    from autoturbo import compiled
    from autoturbo.compiled import kept_in

    package = Path(compiled.__file__).parent
    folder = kept_in()
    place = folder or package
    files = [file for file in place.rglob("*.nb[ic]") if file.is_file()]
    state = f"{len(files)} files, {'read-only' if folder is None else 'writable'}"
    if place != package and (others := sum(1 for _ in package.rglob("*.nb[ic]"))):
        state += f"; {others} more are read from {package}"
    if folder is None:
        state += "; set NUMBA_CACHE_DIR to keep what is compiled"
    return {
        "ok": folder is not None or bool(files),
        "folder": str(place),
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "writable": folder is not None,
        "state": state,
    }


def _warmed(console: Console) -> int:
    """Compile what is not compiled, and say so; return how many functions that were."""
    from autoturbo.compiled import CompileProgress, watched_compiling

    with watched_compiling(CompileProgress()) as progress:
        warm_up()
    compiled, took = progress.functions, clock(progress.seconds)
    many = f"compiled {compiled} function{'s' if compiled > 1 else ''} in {took}"
    console.say(many if compiled else "all is compiled")
    return compiled


def warm_up() -> None:
    """Tune, check and explain the smallest model that needs every compiled function."""
    from autoturbo.commands.loading import load_model
    from autoturbo.hardware import load_target
    from autoturbo.report.explanation import bounds_of
    from autoturbo.tuning.tuner import tune

    model, target = load_model(MODEL, batch=1), load_target("stcp920")
    result = tune(model, target, trials=TRIALS, baselines=(), verify=False)
    bounds_of(result.best.schedule, what_if=True)


def _ray(address: str | None) -> Finding:
    """Return whether Ray can be used; connect to a cluster only when asked."""
    if address is not None:
        return _reached(address)
    if _version("ray") is None:
        state = f"not installed, and only --ray needs it; {how_to_install('ray')}"
        return {"ok": True, "state": state}
    return {"ok": True, "state": "installed; --ray [ADDRESS] tries a cluster"}


def _reached(address: str) -> Finding:
    """Connect to a cluster as a tuning run does."""
    from importlib import import_module

    from autoturbo.search.executors.ray_session import connect

    try:
        session = connect(address)
    except AutoTurboError as error:
        return {"ok": False, "state": str(error)}
    ray: Any = import_module("ray")  # most of it is not annotated
    processors = sum(node["Resources"].get("CPU", 0) for node in ray.nodes())
    session.close()
    return {"ok": True, "state": f"reached, {processors:.0f} CPUs"}


def _database(path: str) -> DatabaseFinding:
    if not Path(path).exists():
        return {"ok": True, "path": path, "state": "none yet; 'autoturbo tune' makes it"}
    try:
        with opened(path) as database:
            health = database.health()
    except AutoTurboError as error:
        return {"ok": False, "path": path, "state": str(error)}
    said = health["integrity"]
    return {
        "ok": said == "ok", "path": path, "bytes": health["bytes"], "integrity": said,
        "user_version": health["user_version"], "journal_mode": health["journal_mode"],
        "sqlite": health["sqlite"], "counts": health["counts"], "state": said,
    }  # fmt: skip


def _print(found: DoctorLine, console: Console) -> None:
    from autoturbo.database import Counts

    versions = {k: v for k, v in found["versions"].items() if k != "ok"}
    rows = [(name, str(value)) for name, value in versions.items()]
    cache, database = found["cache"], found["database"]
    rows.append(("compiled code", f"{cache['folder']}: {cache['state']}"))
    rows.append(("Ray cluster", found["ray"]["state"]))
    held = [counted(Counts(**database["counts"]))] if "counts" in database else []
    rows.append(("database", f"{database['path']}: {', '.join([database['state'], *held])}"))
    console.table(("checked", "found"), rows, words=2)
    checks = {"versions": found["versions"], "cache": cache, "ray": found["ray"]}
    for name, finding in {**checks, "database": database}.items():
        if not finding["ok"]:
            warn(f"problem: {name}")
