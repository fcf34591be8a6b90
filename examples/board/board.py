"""A small board that is simulated: it listens on a socket of this computer and answers in seconds.

    python board.py PORT

A request is one line of JSON: a model, a batch size, the settings of a schedule, and how often to
run it. An answer is one line: the seconds of each run. They vary by 2 %, and the board slows down
by a tenth while it warms up, as boards do. It is built as ``stcp920`` is, but its memory is slower
and its launches take longer than the data sheet says.
"""

from __future__ import annotations

import functools
import json
import math
import random
import socketserver
import sys

import autoturbo
from autoturbo.hardware import with_field
from autoturbo.plugin import Failure, Knobs
from autoturbo.simulator.evaluator import Evaluator

BOARD = with_field(autoturbo.load_target("stcp920"), "ddr.bandwidth_gb_s", 90.0)
BOARD = with_field(BOARD, "overheads.kernel_launch_us", 6.0)


@functools.lru_cache(maxsize=8)
def evaluator(model: str, batch: int) -> Evaluator:
    """Return what simulates a model on the board."""
    return Evaluator(autoturbo.load_model(model, batch=batch), BOARD, "float16")


class Runs(socketserver.StreamRequestHandler):
    """Answers one request."""

    chance, made = random.Random(1), 0  # noqa: S311  no secret

    def handle(self) -> None:
        """Read a request, and write the seconds of its runs, or why there are none."""
        line = self.rfile.readline()
        if not line:
            return  # somebody looked whether the board is there
        asked = json.loads(line)
        outcome = evaluator(asked["model"], asked["batch"]).evaluate(
            Knobs.from_dict(asked["knobs"])
        )
        answer: dict[str, object] = {}
        if isinstance(outcome, Failure):
            answer["error"] = outcome.message
        else:
            answer["seconds"] = [self.once(outcome.latency) for _ in range(asked["repeats"])]
        self.wfile.write(json.dumps(answer).encode() + b"\n")

    def once(self, seconds: float) -> float:
        """Return what a run takes now."""
        Runs.made += 1
        warm = 1 + 0.1 * min(Runs.made / 500, 1)
        return seconds * warm * math.exp(self.chance.gauss(0, 0.02))


if __name__ == "__main__":
    socketserver.TCPServer.allow_reuse_address = True
    with socketserver.TCPServer(("127.0.0.1", int(sys.argv[1])), Runs) as server:
        server.serve_forever()
