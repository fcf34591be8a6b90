"""A sweep as a picture: latency against the first field, a line for each value of the others.

Drawn with matplotlib (the extra ``plots``): it writes SVG, PNG and PDF without a browser, and the
same sweep gives the same bytes.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autoturbo.errors import UsageError
from autoturbo.report.sweep import Sweep, SweepPoint, shown
from autoturbo.report.units import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autoturbo.hardware.grid import Value

FORMATS = ("svg", "png", "pdf")
"""What can be written, by the end of the file's name."""

_SALT = "autoturbo"  # ids in the SVG follow from it: the same picture is the same file
_SPREAD = 4.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""


def require_matplotlib() -> None:
    """Say before a long run that its picture cannot be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        hint = "install it with: pip install 'autoturbo[plots]'"
        raise UsageError("plots need matplotlib, which is not installed", hint=hint)


def plot(sweep: Sweep, form: str = "svg") -> bytes:
    """The picture as a file's content.

    Args:
        sweep: what is drawn; points that do not fit are left out.
        form: one of :data:`FORMATS`.

    Raises:
        UsageError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": _SALT, "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.0, 4.5), layout="constrained")
        _draw(figure.add_subplot(), sweep)
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=_METADATA[form])
    return out.getvalue()


_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {},
    "pdf": {"CreationDate": None},
}


def _draw(axes: Any, sweep: Sweep) -> None:
    first, *others = sweep.axes
    numeric = first.is_numeric
    places = {value: float(value) if numeric else at for at, value in enumerate(first.values)}
    front = sweep.front
    for rest, points in _lines(sweep):
        label = ", ".join(
            f"{axis.short} {shown(value)}" for axis, value in zip(others, rest, strict=True)
        )
        x = [places[point.values[0]] for point in points]
        axes.plot(x, [_ms(point) for point in points], marker="o", label=plain(label))
    if front:
        x = [places[point.values[0]] for point in front]
        axes.plot(
            x, [_ms(point) for point in front], linestyle="", marker="o", markersize=12,
            markerfacecolor="none", markeredgecolor="black", label="Pareto front",
        )  # fmt: skip
    _label(axes, sweep, list(places.values()))


def _lines(sweep: Sweep) -> list[tuple[tuple[Value, ...], list[SweepPoint]]]:
    """Points that fit by the values of all fields but the first, in its order."""
    lines: dict[tuple[Value, ...], list[SweepPoint]] = {}
    for point in sweep.points:
        if point.best is not None:
            lines.setdefault(point.values[1:], []).append(point)
    order = sweep.axes[0].values
    return [
        (rest, sorted(points, key=lambda p: order.index(p.values[0])))
        for rest, points in lines.items()
    ]


def _label(axes: Any, sweep: Sweep, places: Sequence[float]) -> None:
    first = sweep.axes[0]
    latencies = [_ms(point) for point in sweep.points if point.best is not None]
    if first.is_numeric and _is_wide(places):
        axes.set_xscale("log")
    if _is_wide(latencies):
        axes.set_yscale("log")
    axes.set_xticks(places, [shown(value) for value in first.values])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(plain(first.short))
    axes.set_ylabel("tuned latency, ms")
    axes.set_title(plain(f"{sweep.model} @ {sweep.target}, {sweep.dtype}"))
    axes.grid(visible=True, alpha=0.3)
    texts = [axes.title, axes.xaxis.label, *axes.get_xticklabels()]
    if latencies:
        texts += axes.legend().get_texts()
    for text in texts:  # names come from files: a dollar sign in one is no formula
        text.set_parse_math(False)


def _is_wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _SPREAD


def _ms(point: SweepPoint) -> float:
    return 1e3 * point.best.latency if point.best is not None else float("nan")


__all__ = ["FORMATS", "plot", "require_matplotlib"]
