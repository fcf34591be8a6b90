"""Settings that a program of the user's proposes: a script, a person at a prompt, a language model.

It reads and writes lines of JSON. What it is sent, in this order::

    {"space": {...}, "model": NAME, "target": NAME, "objectives": [...], "seed": N}     once
    {"told": {"knobs": {...}, "latency_s": 0.0067, ...}}        of every trial that has ended
    {"told": {"knobs": {...}, "failed": "LB", "message": ...}}  likewise, where it does not fit
    {"refused": {"proposal": ..., "message": "..."}}            of a proposal that is none
    {"ask": 16}                                                 how many are wanted

``space`` is what ``autoturbo space --json`` prints. It answers each ``ask`` with one line,
``{"propose": [{KNOB: VALUE, ...}, ...]}``: settings as ``--knobs`` takes them, at most as many as
were asked for. What is not in the space or was tried before is refused and asked for again; where
nothing new has come after that, settings drawn at random fill up the round.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, PluginError, UsageError
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.evolution import fresh_points
from autoturbo.search.objectives import Objective
from autoturbo.search.space import Space
from autoturbo.simulate.measurement import Failure, Outcome

ASKED_AGAIN = 2
"""Times that a program is asked again within a round for what it owes."""

_SHOWN = 200
"""Characters of a wrong answer that are shown."""


@dataclass(eq=False)
class ProgramProposer:
    """A program that is asked for settings and told what became of them.

    Attributes:
        command: its command line.
        space: of the knobs.
        objectives: at least one.
        seed: of what fills up rounds.
        about: further facts that it is told at the start.
        initial: settings that are proposed before it is asked.
    """

    command: str
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    about: Mapping[str, Any] = field(default_factory=dict)
    initial: tuple[Knobs, ...] = ()
    _told: set[tuple[int, ...]] = field(default_factory=set)
    _untold: list[tuple[Knobs, Outcome]] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def ask(self, count: int) -> list[Knobs]:
        """Return new settings, fewer than asked for only where the space has no more.

        Raises:
            UsageError: the program cannot be started.
            PluginError: it has ended, or answers with something else.
        """
        count = min(count, self.space.size - len(self._told))
        first = [point for k in self.initial if (point := self.space.point_of(k)) not in self._told]
        found = dict.fromkeys(first[:count])
        for knobs, outcome in self._untold:
            self._send({"told": {"knobs": knobs.as_dict(), **self._figures(outcome)}})
        self._untold.clear()
        for _ in range(1 + ASKED_AGAIN):
            if len(found) < count:
                self._send({"ask": count - len(found)})
                for proposal in self._proposals()[: count - len(found)]:
                    self._consider(proposal, found)
        rng = np.random.default_rng([self.seed, len(self._told), 1])
        more = fresh_points(self.space, rng, {*self._told, *found}, count - len(found))
        return [self.space.knobs_of(genes) for genes in [*found, *more]]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take what became of a setting, asked for or not."""
        self._told.add(self.space.point_of(knobs))
        self._untold.append((knobs, outcome))

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a setting that was told, every dimension named."""
        return self.space.from_knobs(knobs)

    def _consider(self, proposal: object, found: dict[tuple[int, ...], None]) -> None:
        """Take a proposal, or tell the program why it is none."""
        try:
            genes = self.space.point_of(_knobs(proposal))
        except KnobsError as error:
            self._send({"refused": {"proposal": proposal, "message": str(error)}})
            return
        if genes in self._told or genes in found:
            self._send({"refused": {"proposal": proposal, "message": "it was proposed before"}})
        else:
            found[genes] = None

    def _figures(self, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Failure):
            return {"failed": outcome.reason, "message": outcome.message}
        return {"latency_s": outcome.latency, **{o.name: o.value(outcome) for o in self.objectives}}

    def _proposals(self) -> list[object]:
        """Return the answer to one question."""
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
            said = line.strip()[:_SHOWN]
            text = f"the program {self.command!r} answers {said!r}"
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
        """Return the process, begun and told the space when it is first needed."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603  the user's own command
                words_of(self.command), text=True, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            weakref.finalize(self, _end, self._process)
            names = [objective.name for objective in self.objectives]
            said = {**self.about, "objectives": names, "seed": self.seed}
            self._send({"space": self.space.as_json(), **said})
        return self._process


def _knobs(proposal: object) -> Knobs:
    if not isinstance(proposal, dict):
        raise KnobsError("a proposal is an object of knobs and values")
    return Knobs.from_dict(proposal)


def words_of(command: str) -> list[str]:
    """Return the words of a program's command line.

    Raises:
        UsageError: there is no such program.
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
    """End a program: it sees the end of its input, and is killed if it goes on."""
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
