"""Proposes settings for ``autoturbo tune``: one or two changes of the best one so far.

``autoturbo tune resnet18 --sampler program --proposer "python examples/proposer/hill_climb.py"``.
Any program that reads and writes such lines will do: a script, a prompt for a person, a language
model behind its API. Standard output belongs to the answers; say anything else on standard error.
"""

from __future__ import annotations

import json
import random
import sys


def main() -> None:
    """Answer every line that asks for settings."""
    knobs, best, fastest, rng = {}, {}, float("inf"), random.Random(0)  # noqa: S311  no secrets
    for line in sys.stdin:
        message = json.loads(line)
        if "space" in message:
            knobs = {row["knob"]: row["choices"] for row in message["space"]["knobs"]}
            rng = random.Random(message["seed"])  # noqa: S311
        elif "told" in message:
            told = message["told"]
            if told.get("latency_s", float("inf")) < fastest:
                best, fastest = told["knobs"], told["latency_s"]
        elif "ask" in message:
            proposals = []
            for _ in range(message["ask"]):
                names = rng.sample(sorted(knobs), k=rng.choice((1, 2)))
                proposals.append({**best, **{name: rng.choice(knobs[name]) for name in names}})
            print(json.dumps({"propose": proposals}), flush=True)


if __name__ == "__main__":
    main()
