"""Branches that read nothing of each other run side by side where that gains."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.hardware.presets import load_preset
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.warm_starts.starts import starting_point
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import seconds_of
from tests.schedule.schedule_samples import Net
