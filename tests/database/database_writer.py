"""A process that writes to a database, for the tests that kill it or run several at once.

``database_writer.py DATABASE RUN FIRST BATCHES SIZE`` records BATCHES batches of SIZE trials from
number FIRST on, puts a best schedule with each, and prints the number of the last
trial of a batch once ``add_trials`` has returned.
"""

from __future__ import annotations

import sys

from autoturbo.database import Database
from tests.database import database_samples as samples


def main(path: str, run: str, first: int, batches: int, size: int) -> None:
    with Database.open(path) as database:
        for start in range(first, first + batches * size, size):
            numbers = range(start, start + size)
            database.add_trials([samples.trial(n, 1.0 / (n + 1), run) for n in numbers])
            print(numbers[-1], flush=True)  # noqa: T201
            last = samples.trial(numbers[-1], 1.0 / (numbers[-1] + 1), run)
            place = {"run": run, "trial": last.number, "knobs": last.knobs}
            database.put_best(samples.best(1.0 / (last.number + 1), **place))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
