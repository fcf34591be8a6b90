"""Declared dependency ranges; ``tools/full_tier.py`` installs and runs the lowest of them."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import full_tier
import pytest
from packaging.requirements import Requirement

README = Path(__file__).resolve().parents[1] / "README.md"


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_every_requirement_has_a_lowest_version_that_can_be_pinned() -> None:
    pins = full_tier.lowest(full_tier.declared())
    assert "numba==0.68" in pins  # below it the compiled code is a TypingError
    assert len(pins) == len({pin.split("==")[0] for pin in pins})


def test_what_is_installed_here_is_within_the_ranges() -> None:
    for pin in full_tier.lowest(full_tier.declared()):
        name, _, rest = pin.partition("==")
        if ";" not in rest and name != "cmaes":
            assert number(version(name)) >= number(rest), pin


def megabytes(names: Iterable[str], known: Iterable[str] = ()) -> dict[str, float]:
    """What packages take on the disk with all that they need, but for those that are known."""
    found, left = dict.fromkeys(known, 0.0), [*names]
    while left:
        name = left.pop().lower()
        if name in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        files = [file.locate() for file in package.files or ()]
        found[name] = (
            sum(Path(str(f)).stat().st_size for f in files if Path(str(f)).is_file()) / 1e6
        )
        needed = map(Requirement, package.requires or ())
        left += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="sizes are those of Linux")
def test_sizes_in_the_readme_are_those_of_the_libraries() -> None:
    pattern = r"takes (\d+) MB: (\d+) are LLVM.*? and (\d+) SciPy.*?takes Ray, (\d+) MB"
    told = re.search(pattern, README.read_text("utf-8"), re.DOTALL)
    assert told is not None
    whole, llvm, scipy, ray = map(int, told.groups())
    project = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    base = megabytes(Requirement(text).name for text in project["dependencies"])
    more = megabytes(["ray"], base)
    assert sum(base.values()) == pytest.approx(whole, rel=0.2)  # besides: pip, what Python compiles
    assert base["llvmlite"] == pytest.approx(llvm, rel=0.1)
    assert base["scipy"] == pytest.approx(scipy, rel=0.1)
    assert sum(more.values()) == pytest.approx(ray, rel=0.2)
