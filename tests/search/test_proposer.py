"""Our sampler asked without a study: what it would propose in one."""

from __future__ import annotations

import pytest

from autoturbo.schedule.knobs import Knobs
from autoturbo.search.objectives import find_objectives
from autoturbo.search.proposer import CostModelProposer, proposer_of
from autoturbo.search.samplers import make_sampler
from autoturbo.search.space import Space
from autoturbo.search.study import StudyProposer
from tests.search.search_doubles import Landscape, small_space, toy_space

SPACE = toy_space()


def history(
    make: type, objective: str, rounds: int, count: int, space: Space = SPACE
) -> list[Knobs]:
    """Settings of some rounds of a search on a landscape."""
    objectives = find_objectives(objective)
    choice = make_sampler("cost-model", 3, space, batch=8, objectives=len(objectives))
    if make is CostModelProposer:
        proposer = proposer_of(choice, space, objectives, 3)
        assert isinstance(proposer, CostModelProposer)
    else:
        proposer = StudyProposer(choice, space, objectives, 3)
    landscape = Landscape()
    found = [Knobs()]
    proposer.tell(Knobs(), landscape.evaluate(Knobs()))
    for _ in range(rounds):
        asked = proposer.ask(count)
        for knobs in asked:
            proposer.tell(knobs, landscape.evaluate(knobs))
        found += asked
    return found


@pytest.mark.parametrize("objective", ["latency", "latency,ddr-bytes"])
def test_it_proposes_what_it_would_in_a_study(objective: str) -> None:
    own = history(CostModelProposer, objective, 5, 8)
    assert own == history(StudyProposer, objective, 5, 8)
    assert len(set(own)) == len(own)


def test_it_ends_with_the_space() -> None:
    own = history(CostModelProposer, "latency", 4, 8, small_space())
    assert len(set(own)) == len(own) == small_space().size


def test_other_samplers_have_a_study() -> None:
    objectives = find_objectives("latency")
    assert isinstance(
        proposer_of(make_sampler("random", 0, SPACE), SPACE, objectives, 0), StudyProposer
    )
