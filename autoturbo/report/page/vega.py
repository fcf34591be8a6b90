"""The plotting library: Vega, which vl-convert-python brings without a network.

Charts are written in Vega-Lite and compiled here, so that a mistake shows now and not in a reader's
browser. Colours are names of the page's own style (``var(--ink)``), which SVG takes as they are:
light, dark and paper then need no script.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from autoturbo.errors import UsageError

Spec = dict[str, Any]

_VERSION: Final = "6.4"
"""Of Vega-Lite: the newest in vl-convert 1.9."""

GROUPS: Final = 8
"""Colours of sub-graphs; further ones begin again."""

_FONT: Final = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
"""The page's: Vega measures texts before it draws them, and must know the font."""

_CONFIG: Final[Spec] = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": "var(--rule)"},
    "axis": {
        "labelColor": "var(--soft)", "titleColor": "var(--soft)", "tickColor": "var(--rule)",
        "domainColor": "var(--rule)", "gridColor": "var(--grid)", "labelFontSize": 11,
        "titleFontSize": 11, "titleFontWeight": "normal", "labelFont": _FONT,
        "titleFont": _FONT, "labelLimit": 210, "labelOverlap": "greedy",
    },
    "axisX": {"tickCount": {"expr": "max(2, width / 110)"}},
    "legend": {
        "labelColor": "var(--ink)", "titleColor": "var(--soft)", "labelFontSize": 11,
        "titleFontSize": 11, "titleFontWeight": "normal", "labelFont": _FONT,
        "titleFont": _FONT, "symbolStrokeWidth": 0, "orient": "top", "labelLimit": 260,
    },
    "text": {"fill": "var(--ink)", "font": _FONT, "fontSize": 11},
    "rule": {"stroke": "var(--soft)"},
    "aria": False,
}  # fmt: skip
"""``aria``: marks are not announced one by one; each figure has a sentence and a table instead."""


def library() -> ModuleType:
    """The package that brings Vega.

    Raises:
        UsageError: it is not installed, or too old.
    """
    _check_address_space()
    hint = "install it with: pip install 'autoturbo[report]'"
    try:
        import vl_convert
    except ImportError:
        message = "a report needs vl-convert-python, which is not installed"
        raise UsageError(message, hint=hint) from None
    if _VERSION not in vl_convert.get_vegalite_versions():
        message = f"this vl-convert-python lacks Vega-Lite {_VERSION}"
        raise UsageError(message, hint=hint)
    return vl_convert


_ADDRESSES_GIB: Final = 64
"""Address space that V8, in which vl-convert runs Vega, reserves: it aborts where it cannot."""


def _check_address_space() -> None:
    """Refuse to start V8 under a limit of address space that it does not survive.

    Raises:
        UsageError: there is such a limit.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and most < _ADDRESSES_GIB * 2**30:
        message = f"charts reserve {_ADDRESSES_GIB} GiB of address space, {most // 2**20} MiB are"
        hint = "'ulimit -v unlimited' allows it; to limit memory itself, use a container"
        raise UsageError(f"{message} allowed here", hint=hint)


@functools.cache
def script() -> str:
    """Vega and what shows it in a page, as one script."""
    text: str = library().javascript_bundle(vl_version=_VERSION)
    return text


def compiled(spec: Mapping[str, Any]) -> Spec:
    """The Vega specification of a Vega-Lite chart of the page.

    Raises:
        ValueError: it is none.
    """
    whole = {"config": _CONFIG, "width": "container", **spec}
    found = library().vegalite_to_vega(json.dumps(whole), vl_version=_VERSION)
    known: Spec = found if isinstance(found, dict) else json.loads(found)
    return known


def quantity(field: str, title: str | None, **more: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def words(field: str, title: str | None, **more: Any) -> Spec:
    """A channel of texts in the order of the data."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


_TEXTS: Final = frozenset(
    (
        "what", "of", "who", "lane", "core", "name", "title", "cut", "scope", "bound", "part",
        "level", "knob", "kind", "tried", "group",
    )
)  # fmt: skip
"""Columns of words; all others are numbers."""


def tips(**fields: str) -> list[Spec]:
    """What pointing at a mark shows: titles by field; numbers with four digits."""
    return [
        {"field": field, "title": title, "type": "nominal"}
        if field in _TEXTS
        else {"field": field, "title": title, "type": "quantitative", "format": ",.4~g"}
        for field, title in fields.items()
    ]


def colours(names: Mapping[str, str]) -> Spec:
    """A scale of names with the style's colours."""
    return {"domain": list(names), "range": [f"var(--{colour})" for colour in names.values()]}


def by_group(field: str = "group") -> Spec:
    """The colour of a sub-graph by its number."""
    places = list(range(GROUPS))
    return {
        "field": field, "type": "ordinal", "legend": None,
        "scale": {"domain": places, "range": [f"var(--g{at})" for at in places]},
    }  # fmt: skip
