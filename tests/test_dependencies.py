"""Declared dependency ranges; ``tools/full_tier.py`` installs and runs the lowest of them."""

from __future__ import annotations

import re
from importlib.metadata import version

import full_tier
import pytest


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_every_requirement_has_a_lowest_version_that_can_be_pinned() -> None:
    pins = full_tier.lowest(full_tier.declared())
    assert "numba==0.68" in pins  # below it the compiled code is a TypingError
    assert len(pins) == len({pin.split("==")[0] for pin in pins})


@pytest.mark.parametrize("requirement", ["numpy", "numpy<3", "numpy~=2.0"])
def test_a_requirement_without_one_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="has no lower bound"):
        full_tier.lowest([requirement])


def test_what_is_installed_here_is_within_the_ranges() -> None:
    for pin in full_tier.lowest(full_tier.declared()):
        name, _, rest = pin.partition("==")
        if ";" not in rest and name != "cmaes":
            assert number(version(name)) >= number(rest), pin
