"""The public names for packages that plug something in: registries, protocols, values.

A package names what it brings as entry points of the groups of :mod:`autoturbo.registry`;
``docs/extending.md`` shows one of each kind, and :mod:`autoturbo.testing` has conformance
checks of measurers, cost models and schedulers. What is listed here keeps its name and meaning
(``docs/stability.md``).
"""

from __future__ import annotations

from autoturbo.cost_models.contract import Example, KernelModel, Kernels, ModelStart
from autoturbo.hardware.target import Target
from autoturbo.registry import COST_MODELS, MEASURERS, SAMPLERS, SCHEDULERS, TARGETS, Registry
from autoturbo.schedule.kernels_file import kernels_text
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.proposer import Proposer
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from autoturbo.simulator.measurers import (
    Measurer,
    MeasurerInfo,
    Reading,
    TimedMeasurer,
    measurement_of,
)

__all__ = [
    "COST_MODELS",
    "MEASURERS",
    "SAMPLERS",
    "SCHEDULERS",
    "TARGETS",
    "CandidateEvaluator",
    "Example",
    "Failure",
    "KernelModel",
    "Kernels",
    "Knobs",
    "LowerBound",
    "Measurement",
    "Measurer",
    "MeasurerInfo",
    "ModelScheduler",
    "ModelStart",
    "Outcome",
    "Proposer",
    "Reading",
    "Registry",
    "Schedule",
    "SubGraphKnobs",
    "Target",
    "TimedMeasurer",
    "build_schedule",
    "kernels_text",
    "lower_bound",
    "measurement_of",
]
