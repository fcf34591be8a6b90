"""A chart: what is drawn, and of which rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoturbo.report.page.columns import Columns
from autoturbo.report.page.vega import Spec


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A chart of the page.

    Attributes:
        spec: in Vega-Lite; its data are named.
        data: by name.
        zooms: shows time from ``t0`` to ``t1`` microseconds, which the page's buttons change.
    """

    spec: Spec
    data: Mapping[str, Columns]
    zooms: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return tuple(dict.fromkeys(c.note for c in self.data.values() if c.note))
