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

SIMILAR = {"unet", "bert_large_s384", "bert_base_s256", "llama_prefill"}
"""Workloads that it leaves out: large ones of which a smaller of the same kind is there."""


@pytest.mark.parametrize("name", [name for name in workloads.names() if name not in SIMILAR])
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
