"""Search over who runs what on a machine of several processing units."""

from autoturbo.search.units.annealing import Found, best_assignment
from autoturbo.search.units.decisions import every_assignment, points

__all__ = ["Found", "best_assignment", "every_assignment", "points"]
