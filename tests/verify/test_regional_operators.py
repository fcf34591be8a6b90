"""Every row of the operator table, restricted to random regions, is that region of the whole."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from operator_cases import CASES
from operator_harness import Case
from regional_harness import random_part, run_whole

REGIONS = 8

PARTS = [case for case in CASES if (case.op, case.attributes.get("size")) != ("LRN", 4)]
"""Even windows of LRN are in the reference alone, right for as many channels as samples only."""


def _seeded(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.label.encode()))


@pytest.mark.parametrize("case", PARTS, ids=[case.label for case in PARTS])
def test_a_part_is_the_region_of_the_whole(case: Case) -> None:
    rng = _seeded(case)
    whole = run_whole(case, rng)
    for _ in range(REGIONS):
        random_part(whole, rng).check(rng)
