"""The public names for users; :mod:`autoturbo` has all of them, :mod:`autoturbo.plugin` the others.

Each is loaded when it is first asked for. What is listed here keeps its name and meaning
(``docs/stability.md``).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to load than this module
if TYPE_CHECKING:
    from autoturbo import errors, testing
    from autoturbo.commands.loading import load_model
    from autoturbo.commands.schedules.writing import apply_schedule
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target, load_target
    from autoturbo.hardware.machine_files import load_machine
    from autoturbo.host.files import load_runner
    from autoturbo.library import compare, explain, inspect, resume, simulate, sweep, tune, verify
    from autoturbo.schedule.files import load_schedule
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.samplers import CostModelSampler
    from autoturbo.simulator.measurement import Measurement
    from autoturbo.verifier import verify_schedule
    from autoturbo.version import __version__

__all__ = [
    "CostModelSampler",
    "Graph",
    "Knobs",
    "Measurement",
    "Target",
    "__version__",
    "apply_schedule",
    "compare",
    "errors",
    "explain",
    "inspect",
    "load_machine",
    "load_model",
    "load_runner",
    "load_schedule",
    "load_target",
    "resume",
    "simulate",
    "sweep",
    "testing",
    "tune",
    "verify",
    "verify_schedule",
]

_HOMES = {
    "CostModelSampler": "autoturbo.search.samplers",
    "Graph": "autoturbo.graph.operators",
    "Knobs": "autoturbo.schedule.knobs.candidate",
    "Measurement": "autoturbo.simulator.measurement",
    "Target": "autoturbo.hardware",
    "__version__": "autoturbo.version",
    "apply_schedule": "autoturbo.commands.schedules.writing",
    "load_machine": "autoturbo.hardware.machine_files",
    "load_model": "autoturbo.commands.loading",
    "load_runner": "autoturbo.host.files",
    "load_schedule": "autoturbo.schedule.files",
    "load_target": "autoturbo.hardware",
    "verify_schedule": "autoturbo.verifier",
    **dict.fromkeys(
        ("compare", "explain", "inspect", "resume", "simulate", "sweep", "tune", "verify"),
        "autoturbo.library",
    ),
}
"""The module that each public name is defined in."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("errors", "testing"):
        return import_module(f"autoturbo.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'autoturbo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
