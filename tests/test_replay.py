"""What settings gave when the replay corpus was made they give to the bit, searches in the mean."""

from __future__ import annotations

import itertools
from statistics import geometric_mean

import pytest
import replay

from autoturbo.datasets import workloads

PART, FULL_PART = 50, 10
"""The fast tier checks every 50th setting of a workload on a target, other ones on each target; the
full tier every tenth. ``tools/replay.py settings`` checks them all."""

FAST = ("resnet50", "dlrm", "mobilenet_v2", "llama_decode", "whisper_base_enc", "yolov5s_like")
"""Workloads of the fast tier, one of each kind."""


@pytest.mark.parametrize("name", FAST)
def test_a_part_of_the_settings_gives_what_it_gave(name: str) -> None:
    assert replay.differing(name, PART) == []


@pytest.mark.full
@pytest.mark.parametrize("name", workloads.names())
def test_every_tenth_setting_gives_what_it_gave(name: str) -> None:
    assert replay.differing(name, FULL_PART) == []


@pytest.mark.full
def test_searches_find_what_they_found_in_the_mean() -> None:
    """One of each workload, targets and seeds in turn; ``tools/replay.py searches`` runs all 90."""
    asked = [
        (name, replay.SEARCHED[number % 3], number // 3 % 3)
        for number, name in enumerate(replay.TUNED)
    ]
    latencies = list(itertools.starmap(replay.searched, asked))
    assert geometric_mean(replay.over_known(asked, latencies)) <= replay.SLOWER
