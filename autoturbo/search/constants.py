"""The constants of the search, in one record.

What a constant does stands with it. What each is worth is measured: ``search/ablation.py`` searches
models that no table of ours reports with one of them changed or taken out, and
docs/search-quality.md has its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoturbo.statistics import CONFIDENCE


@dataclass(frozen=True)
class SearchConstants:
    """The constants of the search: shares of trials, limits and thresholds.

    Attributes:
        round_trials: Trials of a round: enough to feed a few workers, few enough to learn between.
        hopeless_trials: Trials that all failed, for other reasons than memory, after which a run
            gives up.
        recent_rounds: Rounds whose gain tells what the next one of a pair may bring (Ansor's
            delta t; Zheng et al., OSDI 2020, section 6).
        recent_weight: Weight of that gain beside the distance to the lower bound (Ansor's alpha).
        unknown_gap: Distance to the bound, as a logarithm, where no bound is known.
        objective_weights_trials: Trials proposed under the same weights of several objectives.
        float_levels: Parts of its range into which a number of a plain study is cut.

        quick_model_trials: Measured trials without which the quick model is not asked.
        quick_model_trees: Trees of the quick model.
        process_trials: Measured trials of a plain study above which trees take the place of its
            Gaussian process, whose work grows with their cube.
        feasibility_trees: Trees of the model that tells what fits.

        parents: Best measured candidates that have children.
        generations: Rounds of children.
        children: Children of a generation.
        reranked: Children that the kernel model sees.
        explored_share: Share of a round that is not taken for its prediction.

        opening_mutants: Mutants of the openings that the kernel model sees before the first round.
        descent_steps: Single changes of the heuristic, one after the other, by which the kernel
            model goes before the first round.

        screened_share: Share of a round that changes many sub-graphs at once.
        far_share: A place whose best candidate is worse than the best by this share is left alone.
        places: Places besides the best one's that take turns.
        screened_trials: Measured candidates with a choice after which no design has it.
        alternating_trials: Trials after which a round works on the best place or on another one.
        stale_trials: Trials without a gain after which it does so too; after twice as many, designs
            change every sub-graph and every other one by turns.
        no_gain: Share of a score below which a gain is none.
        crowded_share: Share by which a change may make a design worse and stay in it.
        paired_kinds: Kinds of sub-graphs whose pairs of choices are looked at.
        paired_layers: Layers of a model above which no pairs are looked at.

        subgraph_moves: Share of mutants whose one certain change is a sub-graph's.
        subgraph_reverts: Chance that a sub-graph's choice, when it changes, becomes ``"auto"``.
        subgraph_choices: Choices that a random candidate makes for a sub-graph, where it makes any.
        sparse_draws: Rounds of drawing candidates with few such choices before any will do.

        most_parts: Instances along one dimension at most.
        placed_starts: Starts of the dynamic programme at most.
        start_sets: Sets of layers that it looks at, at most.
        start_slack: A start expected to take so many times the best one's time is left out.
        staying_share: Share of the sub-graphs of each partition for outputs in DDR whose inputs and
            outputs have to fit the local buffers: where little can stay, no partitions for what
            stays are looked for. All do on ipu-mk2, few on mlu100 and stcp920.
        nearer_ratio: How many times as long partitions for outputs in DDR have to take with outputs
            in the local buffers as those made for that, for a start of the latter kind.
        waiting_parts: One such part of the local buffers is left to what later sub-graphs wait for,
            where outputs stay there. With none ViT-B/16 starts at 16.2 ms on ipu-mk2, with an
            eighth at 15.6, with a quarter at 18.5.
        known_schedules: Schedules of the database whose decisions are looked at closely.
        known_share: Share of a model's arithmetic whose layers such a schedule must know.

        race_rounds: Candidates that are measured again in each round of a race, the best so far,
            where measurements vary. Simulated on recorded searches, with 2 % of noise the winner is
            0.3 % behind the best that was tried after 50 trials, 0.4 % after 200.
        confirm_rounds: Measurements of the winner and of the heuristic after that, at least.
        confirm_trials: Trials of a run for each of these: a long run can show smaller gains.
        confidence: At which a gain is stated where measurements vary.
    """

    round_trials: int = 16
    hopeless_trials: int = 32
    recent_rounds: int = 3
    recent_weight: float = 0.2
    unknown_gap: float = 1.0
    objective_weights_trials: int = 4
    float_levels: int = 64

    quick_model_trials: int = 8
    quick_model_trees: int = 60
    process_trials: int = 256
    feasibility_trees: int = 40

    parents: int = 12
    generations: int = 4
    children: int = 192
    reranked: int = 48
    explored_share: float = 0.2
    opening_mutants: int = 96
    descent_steps: int = 3

    screened_share: float = 0.75
    far_share: float = 0.3
    places: int = 4
    screened_trials: int = 2
    alternating_trials: int = 192
    stale_trials: int = 23
    no_gain: float = 1e-3
    crowded_share: float = 0.05
    paired_kinds: int = 3
    paired_layers: int = 2048

    subgraph_moves: float = 0.25
    subgraph_reverts: float = 0.85
    subgraph_choices: float = 2.0
    sparse_draws: int = 16

    most_parts: int = 64
    placed_starts: int = 4
    start_sets: int = 1 << 15
    start_slack: float = 2.0
    staying_share: float = 0.9
    nearer_ratio: float = 1.1
    waiting_parts: int = 8
    known_schedules: int = 8
    known_share: float = 0.3

    race_rounds: tuple[int, ...] = (8, 5, 5, 3, 3)
    confirm_rounds: int = 12
    confirm_trials: int = 8
    confidence: float = CONFIDENCE


SEARCH: Final = SearchConstants()
"""The record that every search goes by."""
