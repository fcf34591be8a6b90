"""Proposers: they are asked for the candidates of a run, and told the outcomes.

Optuna's samplers are asked through a study (:mod:`autoturbo.search.study`). Ours is asked itself:
Optuna's bookkeeping of some hundred parameters a trial takes longer than a measurement. It
proposes what it would in a study of the same trials. A program of the user's is asked through
pipes: a script, a person at a prompt, a language model.
"""

from __future__ import annotations

import json
import operator
import shlex
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from optuna.study import StudyDirection

from autoturbo.errors import KnobsError, PluginError, UsageError
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.climbing import climb, reversions
from autoturbo.search.constants import SEARCH, Climbing, Draws, SearchConstants
from autoturbo.search.evolution import fresh_points
from autoturbo.search.objectives import Objective
from autoturbo.search.samplers import CostModelSampler, SamplerChoice, Told
from autoturbo.search.space import Space
from autoturbo.search.study import StudyProposer, values_of
from autoturbo.simulator.measurement import Failure, Outcome


class Proposer(Protocol):
    """Proposes candidates, and learns from outcomes."""

    def ask(self, count: int) -> list[Knobs]:
        """Return new candidates, fewer than asked for only where the space has no more."""
        ...

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take the outcome of a candidate, asked for or not."""
        ...

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate that was told, every dimension named."""
        ...


def proposer_of(
    choice: SamplerChoice,
    space: Space,
    objectives: tuple[Objective, ...],
    seed: int,
    initial: tuple[Knobs, ...] = (),
    constants: SearchConstants = SEARCH,
) -> Proposer:
    """Return the proposer that asks a sampler.

    Args:
        choice: The sampler.
        space: Of the knobs.
        objectives: What is sought, at least one objective.
        seed: Of what the sampler does not decide.
        initial: Candidates that are proposed before it is asked.
        constants: Of climbing and draws; the sampler has its own.
    """
    draws = constants.draws
    if isinstance(choice.sampler, CostModelSampler):
        return CostModelProposer(
            choice.sampler, choice, space, objectives, seed, initial, draws, constants.climbing
        )
    return StudyProposer(choice, space, objectives, seed, initial, draws)


@dataclass(eq=False)
class CostModelProposer:
    """Our sampler, asked without a study.

    Attributes:
        sampler: Itself.
        choice: With its advisor.
        space: Of the knobs.
        objectives: At least one.
        seed: Of what the sampler does not decide.
        initial: Candidates that are proposed first.
        draws: What fills up rounds.
        climbing: What is near the best; None where nothing is climbed.
    """

    sampler: CostModelSampler
    choice: SamplerChoice
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    initial: tuple[Knobs, ...] = ()
    draws: Draws = SEARCH.draws
    climbing: Climbing | None = SEARCH.climbing
    _known: set[tuple[int, ...]] = field(default_factory=set)
    _told: list[Told] = field(default_factory=list)
    _points: dict[Knobs, tuple[int, ...]] = field(default_factory=dict)
    _untaught: list[tuple[Knobs, Outcome]] = field(default_factory=list)

    def ask(self, count: int) -> list[Knobs]:
        """Return new candidates, fewer than asked for only where the space has no more."""
        self._teach()
        count = min(count, self.space.size - len(self._known))
        first = [point for k in self.initial if (point := self._point(k)) not in self._known]
        proposed, sampled = dict.fromkeys(first[:count]), dict[tuple[int, ...], None]()
        while len(proposed) < count and (new := self._proposed(sampled)):
            sampled.update(dict.fromkeys(new))  # the sampler goes the way that it would go alone
            proposed.update(dict.fromkeys(new))
        proposed = dict.fromkeys([*proposed][:count])
        rng = np.random.default_rng([self.seed, len(self._known), 1])
        taken = {*self._known, *proposed}
        more = fresh_points(self.space, rng, taken, count - len(proposed), self.draws)
        proposed.update(dict.fromkeys(more))
        asked = {self.space.knobs_of(genes): genes for genes in proposed}
        self._points |= asked
        return list(asked)

    def _proposed(self, sampled: dict[tuple[int, ...], None]) -> list[tuple[int, ...]]:
        """Return further proposals of the sampler that are new."""
        number = len(self._told) + len(sampled)
        points = self.sampler.batch_of(number, self._told, {*sampled}, self._directions)
        return [point for point in points if point not in self._known and point not in sampled]

    @property
    def _directions(self) -> list[StudyDirection]:
        return [StudyDirection[o.direction.upper()] for o in self.objectives]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take the outcome of a candidate, asked for or not.

        Raises:
            KnobsError: It is outside the space.
        """
        genes = self._point(knobs)
        self._known.add(genes)
        self._told.append((genes, values_of(outcome, self.objectives)))
        self._untaught.append((knobs, outcome))

    def _teach(self) -> None:
        """Pass the outcomes that are new to the advisor."""
        new, self._untaught = self._untaught, []
        for ranker in self.choice.rankers:
            for knobs, outcome in new:
                ranker.observe(knobs, outcome)

    def near(self, count: int, *, reverting: bool = False) -> list[Knobs]:
        """Return candidates near the best measured ones, by the first objective.

        None where nothing is climbed, but for reversions.

        Args:
            count: How many, at most.
            reverting: Only those that take one choice of the best back.
        """
        scored = [
            (genes, -values[0] if self._directions[0] == StudyDirection.MAXIMIZE else values[0])
            for genes, values in self._told
            if values is not None
        ]
        points = list[tuple[int, ...]]()
        if not scored:
            return []
        if reverting:
            best = min(scored, key=operator.itemgetter(1))[0]
            points = [p for p in reversions(self.space, best) if p not in self._known][:count]
        elif self.climbing is not None:
            points = climb(self.space, scored, self._known, count, self.seed, self.climbing)
        asked = {self.space.knobs_of(genes): genes for genes in points}
        self._points |= asked
        return list(asked)

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate that was told, every dimension named."""
        return self.space.params_of(self._point(knobs))

    def _point(self, knobs: Knobs) -> tuple[int, ...]:
        """Return the encoding of a candidate; those asked for here are remembered."""
        if knobs not in self._points:
            self._points[knobs] = self.space.point_of(knobs)
        return self._points[knobs]


ASKED_AGAIN = 2
"""Times that a program is asked again within a round for what it owes."""

_SHOWN = 200
"""Characters of a wrong answer that are shown."""


@dataclass(eq=False)
class ProgramProposer:
    """A program that is asked for candidates and told their outcomes.

    It reads and writes lines of JSON. What it is sent, in this order::

        {"space": {...}, "model": NAME, "target": NAME, "objectives": [...], "seed": N}     once
        {"told": {"knobs": {...}, "latency_s": 0.0067, ...}}        of every trial that has ended
        {"told": {"knobs": {...}, "failed": "LB", "message": ...}}  likewise, if it does not fit
        {"refused": {"proposal": ..., "message": "..."}}            of a proposal that is none
        {"ask": 16}                                                 how many are wanted

    ``space`` is what ``autoturbo space --json`` prints. It answers each ``ask`` with one line,
    ``{"propose": [{KNOB: VALUE, ...}, ...]}``: settings as ``--knobs`` takes them, at most as many
    as were asked for. What is not in the space or was tried before is refused and asked for again;
    where nothing new has come after that, candidates drawn at random fill up the round.

    Attributes:
        command: Its command line.
        space: Of the knobs.
        objectives: At least one.
        seed: Of what fills up rounds.
        about: Further facts that it is told at the start.
        initial: Candidates that are proposed before it is asked.
        draws: What fills up rounds.
    """

    command: str
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    about: Mapping[str, Any] = field(default_factory=dict)
    initial: tuple[Knobs, ...] = ()
    draws: Draws = SEARCH.draws
    _told: set[tuple[int, ...]] = field(default_factory=set)
    _untold: list[tuple[Knobs, Outcome]] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def ask(self, count: int) -> list[Knobs]:
        """Return new candidates, fewer than asked for only where the space has no more.

        Raises:
            UsageError: The program cannot be started.
            PluginError: It has ended, or answers with something else.
        """
        count = min(count, self.space.size - len(self._told))
        first = [point for k in self.initial if (point := self.space.point_of(k)) not in self._told]
        proposed = dict.fromkeys(first[:count])
        for knobs, outcome in self._untold:
            self._send({"told": {"knobs": knobs.as_dict(), **self._figures(outcome)}})
        self._untold.clear()
        for _ in range(1 + ASKED_AGAIN):
            if len(proposed) < count:
                self._send({"ask": count - len(proposed)})
                for proposal in self._proposals()[: count - len(proposed)]:
                    self._consider(proposal, proposed)
        rng = np.random.default_rng([self.seed, len(self._told), 1])
        taken = {*self._told, *proposed}
        more = fresh_points(self.space, rng, taken, count - len(proposed), self.draws)
        return [self.space.knobs_of(genes) for genes in [*proposed, *more]]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take the outcome of a candidate, asked for or not."""
        self._told.add(self.space.point_of(knobs))
        self._untold.append((knobs, outcome))

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate that was told, every dimension named."""
        return self.space.from_knobs(knobs)

    def _consider(self, proposal: object, proposed: dict[tuple[int, ...], None]) -> None:
        """Add a proposal, or tell the program why it is refused."""
        try:
            genes = self.space.point_of(_knobs(proposal))
        except KnobsError as error:
            self._send({"refused": {"proposal": proposal, "message": str(error)}})
            return
        if genes in self._told or genes in proposed:
            self._send({"refused": {"proposal": proposal, "message": "it was proposed before"}})
        else:
            proposed[genes] = None

    def _figures(self, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Failure):
            return {"failed": outcome.reason, "message": outcome.message}
        return {"latency_s": outcome.latency, **{o.name: o.value(outcome) for o in self.objectives}}

    def _proposals(self) -> list[object]:
        """Return the proposals of the program's next answer."""
        process = self._started()
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise self._ended(process)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        proposals = answer.get("propose") if isinstance(answer, dict) else None
        if not isinstance(proposals, list):
            shown = line.strip()[:_SHOWN]
            text = f"the program {self.command!r} answers {shown!r}"
            raise PluginError(text, hint='it is asked for {"propose": [{KNOB: VALUE, ...}]}')
        return proposals

    def _send(self, message: Mapping[str, Any]) -> None:
        process = self._started()
        try:
            if process.stdin:
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
        except OSError:
            raise self._ended(process) from None

    def _ended(self, process: subprocess.Popen[str]) -> PluginError:
        status = process.wait()
        return PluginError(f"the program {self.command!r} has ended with status {status}")

    def _started(self) -> subprocess.Popen[str]:
        """Return the process, started and told the space on first use."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603  the user's own command
                words_of(self.command), text=True, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            weakref.finalize(self, _end, self._process)
            names = [objective.name for objective in self.objectives]
            facts = {**self.about, "objectives": names, "seed": self.seed}
            self._send({"space": self.space.as_json(), **facts})
        return self._process


def _knobs(proposal: object) -> Knobs:
    if not isinstance(proposal, dict):
        raise KnobsError("a proposal is an object of knobs and values")
    return Knobs.from_dict(proposal)


def words_of(command: str) -> list[str]:
    """Return the words of a program's command line.

    Raises:
        UsageError: There is no such program.
    """
    hint = "give --proposer 'COMMAND ARGUMENT...'"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"proposer {command!r}: {error}", hint=hint) from None
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"proposer {command!r}: there is no such program", hint=hint)
    return words


def _end(process: subprocess.Popen[str]) -> None:
    """End a program by closing its input; kill it if it goes on."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # it no longer reads
                continue
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
