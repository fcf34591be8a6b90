"""Flags by which people say what they know: ``--fix``, ``--allow``, ``--keep``, ``--cut``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoturbo.commands.flag_values import wrong

if TYPE_CHECKING:
    from autoturbo.schedule.knobs import Value


def value_of(text: str) -> Value:
    """Return the value of a knob from its text: a number where it is one."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def fixed_of(texts: Iterable[str]) -> dict[str, Value]:
    """Return fixed values by name, from ``KNOB=VALUE``, ``LAYER.KNOB=VALUE`` and knobs files.

    Raises:
        UsageError: A text is neither, or two ask for different values.
        KnobsError: A file cannot be read, or a knob does not take its value.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.schedule.knobs.file import candidate_of
    from autoturbo.schedule.knobs.pins import checked, flat

    fixed: dict[str, Value] = {}
    for text in texts:
        # the last sign: names of layers may hold one
        name, sign, value = text.rpartition("=")
        if not sign and not Path(text).is_file():
            hint = "for example --fix prefetch_depth=3, --fix conv1.factor=4 or --fix knobs.json"
            raise wrong("--fix", f"{text!r} is no KNOB=VALUE and no file", hint)
        for knob, asked in (
            {name: value_of(value)}.items() if sign else flat(candidate_of(Path(text))).items()
        ):
            if fixed.setdefault(knob, asked) != asked:
                raise wrong("--fix", f"{knob} is fixed twice, at {fixed[knob]} and {asked}")
    checked(fixed, {})
    return fixed


def allowed_of(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Return the allowed values by knob, from ``KNOB=V1,V2``.

    Raises:
        UsageError: A text is something else.
        KnobsError: There is no such knob, or it does not take a value.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.schedule.knobs.pins import checked

    allowed: dict[str, list[Value]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not name:
            raise wrong(
                "--allow", f"{text!r} is no KNOB=V1,V2", "for example --allow split_dims=batch"
            )
        allowed.setdefault(name, []).extend(value_of(v) for v in values.split(",") if v)
    checked({}, allowed)
    return allowed


def groups_of(texts: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return groups of layers, from names with commas between."""
    return tuple(tuple(name for name in text.split(",") if name) for text in texts)


def candidates_of(texts: Iterable[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the settings of knobs files and schedule files.

    Raises:
        KnobsError: A file is neither.
    """
    from autoturbo.schedule.knobs.file import candidate_of

    return tuple(candidate_of(Path(text)).as_dict() for text in texts)


READERS: Final[Mapping[str, Callable[[Iterable[str]], Any]]] = {
    "values": fixed_of, "offers": allowed_of, "layers": list, "groups": groups_of,
    "candidates": candidates_of,
}  # fmt: skip
"""What an option that may be given again is read by, by its kind."""
