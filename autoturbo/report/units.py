"""Numbers for people: three significant digits and a unit.

A space before every unit (``7.41 ms``, ``88 %``, ``18.4 k``), ASCII only. Prefixes are decimal, but
for the capacity of a memory.
"""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, Final

from autoturbo.registry import HEURISTIC, HEURISTICS, SIMULATOR

if TYPE_CHECKING:
    from autoturbo.simulator.measurement import LatencyRange, Measurement

_Scale = tuple[tuple[float, str], ...]

_SECONDS: Final[_Scale] = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_JOULES: Final[_Scale] = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"))
_BYTES: Final[_Scale] = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_CAPACITIES: Final[_Scale] = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_COUNTS: Final[_Scale] = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

_ROUNDS_UP: Final = 0.9995
"""Share of a unit from which three digits show the whole unit: 999.6 us reads 1.00 ms."""


def duration(seconds: float) -> str:
    """Return a short time in seconds as text: ``7.41 ms``."""
    return _scaled(seconds, _SECONDS)


def joules(energy: float) -> str:
    """Return an energy in joules as text: ``512 mJ``."""
    return _scaled(energy, _JOULES)


def size(count: float) -> str:
    """Return bytes as text: ``1.23 GB``."""
    return _whole(count, " B") or _scaled(count, _BYTES)


def capacity(count: float) -> str:
    """Return the bytes that a memory holds as text: ``1 MiB``, ``1.50 GiB``."""
    factor, unit = next((row for row in _CAPACITIES if count >= row[0]), _CAPACITIES[-1])
    return _whole(count / factor, f" {unit}") or f"{_digits(count / factor)} {unit}"


def count(number: float | None) -> str:
    """Return a number as text: ``24``, ``18.4 k``, ``0.52``; ``-`` for one that is not known."""
    if number is None:
        return "-"
    return _whole(number, "") or _scaled(number, _COUNTS).rstrip()


def speed(samples_per_second: float | None) -> str:
    """Return a throughput as text: ``18.4 k samples/s``."""
    if samples_per_second is None:
        return "not known: the inputs do not agree on a batch"
    return f"{count(samples_per_second)} samples/s"


def counted(number: int, what: str) -> str:
    """Return a number of things as text: ``1 layer``, ``24 layers``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def schedules(made: int, settings: int, asked: int | None = None) -> str:
    """Return what was tried: ``64 trials``, ``91 settings, 64 schedules`` where some were alike.

    Args:
        made: Number of schedules that were made.
        settings: Number of settings, of which some may give the same schedule.
        asked: Trials that were asked for; what is beyond them was climbed.
    """
    if asked is not None and made > asked:
        return f"{counted(asked, 'trial')}, {made - asked} schedules more by climbing"
    return counted(made, "trial") if made >= settings else f"{settings} settings, {made} schedules"


def many(number: int) -> str:
    """Return a number that may be beyond imagination as text: ``5184``, ``4.6 x 10^46``."""
    if number < 10**6:
        return str(number)
    digits = str(number)
    rounded = round(int(digits[:4]), -2)  # 9.95 and more becomes 10
    power = len(digits) - 1 + (len(str(rounded)) > 4)  # noqa: PLR2004
    return f"{str(rounded)[0]}.{str(rounded)[1]} x 10^{power}"


def macs(number: float) -> str:
    """Return multiply-accumulates as text: ``4.09 GMAC``."""
    text = count(number)
    return f"{text}MAC" if text[-1].isalpha() else f"{text} MAC"


def vector_sentence(number: int) -> str:
    """Return which multiply-accumulates the matrix engine does not do; empty for none."""
    if not number:
        return ""
    return f"matrix use is without {macs(number)} on the vector engine (depthwise, narrow)"


def percent(share: float) -> str:
    """Return a share of one as text: ``88 %``."""
    return f"{_rounded(100 * share)} %"


def change(new: float, old: float) -> str:
    """Return how much ``new`` is off ``old``, with its sign: ``-31 %``."""
    share = 100 * (new / old - 1)
    return "0 %" if round(share) == 0 else f"{round(share):+d} %"


def ratio(value: float) -> str:
    """Return a factor as text: ``1.45x``."""
    return f"{_digits(value)}x"


def gain(latency_s: float | None, base_s: float | None) -> str:
    """Return how many times as fast a latency is as a base; ``-`` where one is missing."""
    return "-" if latency_s is None or base_s is None else ratio(base_s / latency_s)


def versus(base: str | None) -> str:
    """Return the heading of a column of speed-ups over a scheduler."""
    name = HEURISTIC if base in ("default", *HEURISTICS) else base
    return f"vs {name if name and len(name) <= len(HEURISTIC) else 'first row'}"


def origin_of(measurer: str) -> str:
    """Return where a measurer's figures come from, in words."""
    return "simulated" if measurer == SIMULATOR else f"measured by {measurer}"


def is_doubted(gain: float, known_error: float | None) -> bool:
    """Return whether a simulated gain is below the known error of the target, where there is one.

    Args:
        gain: How many times as fast.
        known_error: Relative error of the target's simulated times.
    """
    return known_error is not None and gain - 1 < known_error


def figures_of(measurer: str, known_error: float | None, gain: float | None = None) -> str:
    """Return where figures come from, and how far off simulated ones are known to be, in words.

    Args:
        measurer: The name of what measured.
        known_error: Relative error of the target's simulated times; None where nobody compared
            them with measured ones.
        gain: How many times as fast, where that is stated with them.
    """
    if measurer != SIMULATOR:
        return origin_of(measurer)
    if known_error is None:
        return "simulated; this chip was never calibrated"
    doubted = gain is not None and gain > 1 and is_doubted(gain, known_error)
    below = "the gain is below the known" if doubted else "known"
    return f"simulated; {below} error of {percent(known_error)}"


def range_sentence(latency: float, found: LatencyRange | None) -> str:
    """Return a latency and its range over what is not published; empty where there is none."""
    if found is None:
        return ""
    ends = f"{duration(found.low)} to {duration(found.high)}"
    return f"{duration(latency)}; {ends} over what is not published: {', '.join(found.fields)}"


def known_size(count: float | None) -> str:
    """Return bytes as text; ``-`` where they are not known."""
    return "-" if count is None else size(count)


def traffic(measurement: Measurement) -> str:
    """Return the DDR traffic of a measurement; ``-`` where its measurer tells none."""
    return known_size(measurement.moved["ddr_bytes"])


def clock(seconds: float) -> str:
    """Return a span of seconds as on a watch: ``0:38``, ``1:02:03``."""
    minutes, rest_s = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"


def plain(text: object) -> str:
    """Return ``text`` on one line, with control, format and surrogate characters escaped."""
    return "".join(_visible(character) for character in str(text))


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return character.encode("unicode_escape").decode("ascii") if hidden else character


def _whole(number: float, unit: str) -> str | None:
    # from 1000 on a prefix makes it shorter
    small = float(number).is_integer() and abs(number) < 1000  # noqa: PLR2004
    return f"{int(number)}{unit}" if small else None


def _scaled(value: float, scale: _Scale) -> str:
    if not math.isfinite(value):
        return "-"
    fits = ((factor, unit) for factor, unit in scale if abs(value) >= _ROUNDS_UP * factor)
    factor, unit = next(fits, scale[-1])
    return f"{_digits(value / factor)} {unit}"


def _digits(value: float) -> str:
    """Return three significant digits, none behind the point from 100 on."""
    if not math.isfinite(value):
        return "-"
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0  # noqa: PLR2004
    return f"{value:.{decimals}f}"


def _rounded(value: float) -> str:
    """Return a whole number, or one digit where it would be zero but is not."""
    tiny = 0 < abs(value) < 0.5  # noqa: PLR2004 - rounds to zero
    return f"{value:.2g}" if tiny else f"{value:.0f}"
