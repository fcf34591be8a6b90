"""The constants of the search: a record for each mechanism, and one of all of them.

What a constant does stands with it. What each is worth is measured: ``search/ablation.py`` searches
models that no table of ours reports with one of them changed or a mechanism left out, and
docs/search-quality.md has its table.

Records are handed in: a function takes that of its mechanism, and what joins mechanisms takes
:class:`SearchConstants`. Of a mechanism that a search can do without, None switches it off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autoturbo.statistics import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a search.

    Attributes:
        round_trials: Trials of a round: enough to feed a few workers, few enough to learn between.
        repeated_rounds: Rounds' worth of settings that all repeat schedules, after which a space
            has no more of them.
        hopeless_trials: Trials that all failed, for other reasons than memory, after which a run
            gives up.
        objective_weights_trials: Trials proposed under the same weights of several objectives.
    """

    round_trials: int = 16
    repeated_rounds: int = 8
    hopeless_trials: int = 32
    objective_weights_trials: int = 4


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of rounds to several searches.

    Attributes:
        recent_rounds: Rounds whose gain tells what the next one of a pair may bring (Ansor's
            delta t; Zheng et al., OSDI 2020, section 6).
        recent_weight: Weight of that gain beside the distance to the lower bound (Ansor's alpha).
        unknown_gap: Distance to the bound, as a logarithm, where no bound is known.
    """

    recent_rounds: int = 3
    recent_weight: float = 0.2
    unknown_gap: float = 1.0


@dataclass(frozen=True, slots=True)
class Climbing:
    """The climb from the best candidates after the trials, where measuring is cheap.

    Attributes:
        climbs: Schedules measured by climbing for each trial.
        climbing_trials: Trials without which a run is a first look, and does not climb.
        at_once: Schedules that are measured before the climb looks on. Of 4, 8 and 16 none is best
            on all of the paper's ten: 4 is 2 to 3 % ahead of 16 on Conformer and MobileNet-v2, and
            2 % behind 8 on BERT-large.
        climbed: Places from which it is climbed at a time, the best first.
        far_share: A place whose best candidate is worse than the best by this share is left alone.
        climbed_from: Candidates whose neighbours are tried, the best first.
        joined: Candidates near the best whose choices are tried on top of its own.
        joined_apart: Choices in which these differ from it at most.
    """

    climbs: float = 3.0
    climbing_trials: int = 32
    at_once: int = 8
    climbed: int = 3
    far_share: float = 0.3
    climbed_from: int = 8
    joined: int = 4
    joined_apart: int = 3


@dataclass(frozen=True, slots=True)
class Reversions:
    """Choices of the best that are taken back at the end, where there is no climb.

    Attributes:
        reverted_share: Share of the trials that is kept for it.
    """

    reverted_share: float = 0.25


@dataclass(frozen=True, slots=True)
class ChoiceModel:
    """The model of choices, which predicts from these alone where no kernel model can tell.

    Attributes:
        trials: Measured trials without which it is not asked.
        trees: Trees that predict scores.
        feasibility_trees: Trees that predict what fits.
    """

    trials: int = 8
    trees: int = 60
    # A plain study with walls ends at 3.6 where the Gaussian process does not ask them, at 0.2
    # where it does: a bowl whose bottom is 0, 80 trials, means of ten seeds.
    feasibility_trees: int = 40


@dataclass(frozen=True, slots=True)
class Evolution:
    """The mutants of the best candidates.

    Attributes:
        parents: Best measured candidates that have children.
        mutants: Mutants of the parents that are ranked.
        explored_share: Share of a round that is not taken for its prediction.
        opening_mutants: Mutants of the openings that the kernel model sees before the first round.
    """

    parents: int = 12
    mutants: int = 64
    explored_share: float = 0.2
    opening_mutants: int = 96


@dataclass(frozen=True, slots=True)
class Screening:
    """Group screening: many sub-graphs changed at once, and the best choices of all composed.

    Attributes:
        screened_share: Share of a round that does so.
        far_share: Before anything is measured, a start whose composition is predicted to be worse
            than the best by this share is left alone.
        screened_trials: Measured candidates with a choice after which no design has it.
        stale_trials: Trials without a gain after which designs change every sub-graph and every
            other one by turns.
        no_gain: Share of a score below which a gain is none.
        crowded_share: Share by which a change may make a design worse and stay in it.
    """

    screened_share: float = 0.75
    far_share: float = 0.3
    screened_trials: int = 2
    stale_trials: int = 46
    no_gain: float = 1e-3
    crowded_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Draws:
    """Random candidates and mutants of a space.

    Attributes:
        subgraph_moves: Share of mutants whose one certain change is a sub-graph's.
        subgraph_reverts: Chance that a sub-graph's choice, when it changes, becomes ``"auto"``.
        subgraph_choices: Choices that a random candidate makes for a sub-graph, where it makes any.
        sparse_draws: Rounds of drawing candidates with few such choices before any will do.
        fruitless_draws: Rounds of drawing that bring nothing new, after which a space has no more.
    """

    subgraph_moves: float = 0.25
    subgraph_reverts: float = 0.85
    subgraph_choices: float = 2.0
    sparse_draws: int = 16
    fruitless_draws: int = 64


@dataclass(frozen=True, slots=True)
class PlainStudies:
    """Studies whose parameters are not knobs.

    Attributes:
        float_levels: Parts of its range into which a number is cut.
        process_trials: Measured trials above which trees take the place of the Gaussian process,
            whose work grows with their cube.
    """

    float_levels: int = 64
    process_trials: int = 256


@dataclass(frozen=True, slots=True)
class Starts:
    """The partitions of the dynamic programme, from which a search starts.

    Attributes:
        most: Starts at most.
        sets: Sets of layers that it looks at, at most.
        slack: A start expected to take so many times the best one's time is left out.
        staying_share: Share of the sub-graphs of each partition for outputs in DDR whose inputs and
            outputs have to fit the local buffers: where little can stay, no partitions for what
            stays are looked for. All do on ipu-mk2, few on mlu100 and stcp920.
        nearer_ratio: How many times as long partitions for outputs in DDR have to take with outputs
            in the local buffers as those made for that, for a start of the latter kind.
        waiting_parts: One such part of the local buffers is left to what later sub-graphs wait for,
            where outputs stay there. With none ViT-B/16 starts at 16.2 ms on ipu-mk2, with an
            eighth at 15.6, with a quarter at 18.5.
        divided_cuts: Cuts at most of the heuristic with outputs that clusters divide.
        divided_places: Places, about as many, where each of these is tried.
        divided_subgraphs: Sub-graphs beyond which it is not cut: the dynamic programme's are as
            small, and each place tried takes as long as the model is large.
    """

    most: int = 4
    sets: int = 1 << 15
    slack: float = 2.0
    staying_share: float = 0.9
    nearer_ratio: float = 1.1
    waiting_parts: int = 8
    divided_cuts: int = 4
    divided_places: int = 12
    divided_subgraphs: int = 8


@dataclass(frozen=True, slots=True)
class Transfers:
    """The decisions that are taken over from other models' schedules.

    Attributes:
        known_schedules: Schedules of the database whose decisions are looked at closely.
        known_share: Share of a model's arithmetic whose layers such a schedule must know.
    """

    known_schedules: int = 8
    known_share: float = 0.3


@dataclass(frozen=True, slots=True)
class Racing:
    """The race of the best candidates, where measurements vary.

    Attributes:
        rounds: Candidates that are measured again in each round, the best so far. Simulated on
            recorded searches, with 2 % of noise the winner is 0.3 % behind the best that was tried
            after 50 trials, 0.4 % after 200.
        confirm_rounds: Measurements of the winner and of the heuristic after that, at least.
        confirm_trials: Trials of a run for each of these: a long run can show smaller gains.
        confidence: At which a gain is stated.
    """

    rounds: tuple[int, ...] = (8, 5, 5, 3, 3)
    confirm_rounds: int = 12
    confirm_trials: int = 8
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True)
class SearchConstants:
    """The constants of a search, by mechanism; None leaves a mechanism out.

    Attributes:
        rounds: What a round is, and when a search has no more of them.
        allocation: Which of several searches has the next round.
        climbing: None for no climb after the trials.
        reversions: None for none at the end of a search that does not climb.
        choice_model: The surrogate on choices alone.
        evolution: Mutants of the best.
        screening: None for no designs and no compositions.
        draws: What chance proposes.
        plain_studies: Of parameters that are not knobs.
        starts: None for no partitions of the dynamic programme.
        transfers: None for nothing from the database.
        racing: Which of the best is handed out.
    """

    rounds: Rounds = field(default_factory=Rounds)
    allocation: Allocation = field(default_factory=Allocation)
    climbing: Climbing | None = field(default_factory=Climbing)
    reversions: Reversions | None = field(default_factory=Reversions)
    choice_model: ChoiceModel = field(default_factory=ChoiceModel)
    evolution: Evolution = field(default_factory=Evolution)
    screening: Screening | None = field(default_factory=Screening)
    draws: Draws = field(default_factory=Draws)
    plain_studies: PlainStudies = field(default_factory=PlainStudies)
    starts: Starts | None = field(default_factory=Starts)
    transfers: Transfers | None = field(default_factory=Transfers)
    racing: Racing = field(default_factory=Racing)


SEARCH: Final = SearchConstants()
"""The constants of every search that is handed no others."""
