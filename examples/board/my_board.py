"""A measurer that asks a board over a socket; ``MY_BOARD`` is its port on this computer."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

from autoturbo.plugin import MeasurerInfo, Schedule


class MyBoard:
    """Runs schedules on the board.

    Attributes:
        info: What AutoTurbo is told of it.
    """

    info = MeasurerInfo(repeats=3, warm_up=1, run_limit_s=60.0)

    def build(self, schedule: Schedule) -> dict[str, Any]:
        """Return what the board is sent; a real one is sent what a compiler makes of it."""
        model = schedule.model
        return {"model": model.source, "batch": model.batch, "knobs": schedule.knobs.as_dict()}

    def run(self, built: dict[str, Any], repeats: int) -> Sequence[float]:
        """Return the seconds of each run.

        Raises:
            RuntimeError: The board cannot run it.
        """
        port = int(os.environ["MY_BOARD"])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as board:
            board.sendall(json.dumps({**built, "repeats": repeats}).encode() + b"\n")
            answer = json.loads(board.makefile().readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        seconds: list[float] = answer["seconds"]
        return seconds
