"""Pages and charts from files: templates, and Vega-Lite specifications with columns of data.

Vega is brought by vl-convert-python, which needs no network. Charts are compiled here, so that a
mistake shows now and not in a reader's browser. Colours are names of the page's own style
(``var(--ink)``), which SVG takes as they are: light, dark and paper then need no script. Marks are
not announced one by one (``aria`` in ``charts/config.json``): each figure has a sentence and a
table instead.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from types import ModuleType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autoturbo.errors import UsageError
from autoturbo.extras import how_to_install
from autoturbo.report import units
from autoturbo.report.units import plain

_NAMED_GROUPS: Final = 8
"""Sub-graphs that have colours of the page's own style."""

_GOLDEN_ANGLE: Final = 137.508
"""Degrees between the hues of further ones: neighbours are far apart, and none comes twice."""


def group_colours(count: int) -> list[str]:
    """Return a colour for each sub-graph: all differ, and neighbours differ much."""
    return [
        f"var(--g{index})" if index < _NAMED_GROUPS
        else f"hsl({index * _GOLDEN_ANGLE % 360:.0f} 45% var(--tone{index % 3}))"
        for index in range(count)
    ]  # fmt: skip


_VERSION: Final = "6.4"
"""Version of Vega-Lite: the newest in vl-convert 1.9."""

_ADDRESSES_GIB: Final = 64
"""Address space that V8, in which vl-convert runs Vega, reserves: it aborts where it cannot."""

_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[kMGTmunp]?[sBJ]|[KMG]iB|[kMGT])(?![\w/]))")


def rendered(name: str, **given: object) -> str:
    """Return a template filled in: all that is given is shown as the text that it is.

    Hidden characters are shown as escapes; a value that is missing is an error.
    """
    return _environment().get_template(name).render(**given)


@functools.cache
def _environment() -> Environment:
    """Return the templates' environment, which keeps those that it has compiled."""
    environment = Environment(
        # names of models come from strangers: they are text, never markup
        loader=PackageLoader("autoturbo.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_plain,
    )  # fmt: skip
    environment.filters |= {"line": _line, "united": united, "number": units.count}
    for unit in (
        "capacity",
        "clock",
        "counted",
        "duration",
        "joules",
        "known_size",
        "percent",
        "ratio",
        "size",
        "traffic",
        "vector_sentence",
    ):
        environment.filters[unit] = getattr(units, unit)
    return environment


def _plain(value: object) -> object:
    return value if isinstance(value, Markup) else plain(value)


def _line(value: Markup) -> Markup:
    """Return a template's output of several lines on one."""
    return Markup(re.sub(r"\s*\n\s*", " ", value.strip()))  # noqa: S704  it is markup already


def united(value: Markup) -> Markup:
    """Return markup where a number and its unit stay on one line."""
    return Markup(_UNIT.sub("\N{NO-BREAK SPACE}", value))  # noqa: S704  it is markup already


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of a chart, column by column.

    Attributes:
        values: Equally many per name; texts, numbers, or None.
        note: What was left out, a sentence; empty where nothing was.
    """

    values: Mapping[str, Sequence[Any]]
    note: str = ""

    @staticmethod
    def of(names: str, rows: Iterable[Sequence[Any]], note: str = "") -> Columns:
        """Return rows as columns, whose names stand in one text."""
        values: dict[str, list[Any]] = {name: [] for name in names.split()}
        for row in rows:
            for column, value in zip(values.values(), row, strict=True):
                column.append(value)
        return Columns(values, note)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def where(self, name: str, chosen: Iterable[Any]) -> Columns:
        """Return the rows whose value in a column is one of those chosen."""
        allowed = set(chosen)
        kept = [at for at, value in enumerate(self.values[name]) if value in allowed]
        rows = {of: [column[at] for at in kept] for of, column in self.values.items()}
        return Columns(rows, self.note)

    def rows(self) -> list[dict[str, Any]]:
        """Return an object per row."""
        columns = [map(_shown, column) for column in self.values.values()]
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return a list per column for the page's script; of texts each once, with row numbers."""
        return {name: _packed(column) for name, column in self.values.items()}


def _shown(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else _short(value)


def _packed(column: Sequence[Any]) -> Any:
    if any(isinstance(value, str) for value in column):
        # names of layers come again in thousands of bars: each is written once
        texts = {text: number for number, text in enumerate(dict.fromkeys(column))}
        words = [None if text is None else plain(text) for text in texts]
        return {"of": words, "at": [texts[value] for value in column]}
    return [_short(value) for value in column]


def _short(value: Any) -> Any:
    """Return a number of six digits: more than a screen shows."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many evenly spaced positions of a list, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(step * (count - 1) / (most - 1)) for step in range(most)})


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A chart of the page.

    Attributes:
        name: Name of the file with its specification.
        data: Tables by the name that the specification has for each.
        given: What the file leaves open, where it has ``"$name"``. With an ``end``, the chart shows
            time up to so many microseconds, which the page's buttons zoom.
    """

    name: str
    data: Mapping[str, Columns]
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes on what was left out."""
        return tuple(dict.fromkeys(c.note for c in self.data.values() if c.note))

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return what each colour stands for, where the page says it: it wraps lines."""
        return tuple(zip(self.given.get("parts", ()), self.given.get("colours", ()), strict=True))

    @property
    def zooms(self) -> bool:
        """Return whether it shows time."""
        return "end" in self.given

    def as_json(self) -> dict[str, Any]:
        """Return the specification that the page's script draws with Vega.

        Raises:
            ValueError: The specification is none.
        """
        return {
            "spec": self._compiled("container"),
            "data": {name: columns.as_json() for name, columns in self.data.items()},
            "zooms": self.zooms,
        }

    def filled(self, width: int) -> dict[str, Any]:
        """Return the specification for Vega of so many pixels, with its data in it."""
        spec = self._compiled(width)
        for source in spec["data"]:
            if source["name"] in self.data:
                source["values"] = self.data[source["name"]].rows()
        return spec

    def _compiled(self, width: int | str) -> dict[str, Any]:
        """Return the specification for Vega, without data."""
        spec = {"config": _read("config"), **_filled(_read(self.name), self.given)}
        whole = json.dumps({"width": width, **spec})
        compiled: dict[str, Any] = library().vegalite_to_vega(whole, vl_version=_VERSION)
        return compiled


def _read(name: str) -> Any:
    place = resources.files("autoturbo.report") / "charts" / f"{name}.json"
    return json.loads(place.read_text(encoding="utf-8"))


def _filled(part: Any, given: Mapping[str, Any]) -> Any:
    """Return a part of a specification with its placeholders filled."""
    if isinstance(part, dict):
        return {name: _filled(inner, given) for name, inner in part.items()}
    if isinstance(part, list):
        return [_filled(inner, given) for inner in part]
    return given[part[1:]] if isinstance(part, str) and part.startswith("$") else part


def as_script(charts: Mapping[str, Chart]) -> str:
    """Return charts as JSON that may stand in a script element."""
    all_of_them = {name: chart.as_json() for name, chart in charts.items()}
    dumped = json.dumps(all_of_them, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def library() -> ModuleType:
    """Return the package that brings Vega.

    Raises:
        UsageError: It is not installed, or too old.
    """
    _check_address_space()
    hint = how_to_install("report")
    try:
        import vl_convert
    except ImportError:
        message = "a report needs vl-convert-python, which is not installed"
        raise UsageError(message, hint=hint) from None
    if _VERSION not in vl_convert.get_vegalite_versions():
        message = f"this vl-convert-python lacks Vega-Lite {_VERSION}"
        raise UsageError(message, hint=hint)
    return vl_convert


def _check_address_space() -> None:
    """Refuse to start V8 under a limit of address space that it does not survive.

    Raises:
        UsageError: There is such a limit.
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
    """Return Vega and the page's drawing code, as one script that nothing in it ends."""
    text: str = library().javascript_bundle(vl_version=_VERSION)
    return text.replace("</script", r"<\/script").replace("<!--", r"<\!--")
