"""Files: limits on inputs, protection of files from outputs, and atomic writes."""

from autoturbo.files.inputs import (
    distinct,
    open_input,
    parse_json,
    read_json,
    read_text,
)
from autoturbo.files.limits import JOBS, MEMORY, NODES, ROUND, Limit, is_bomb
from autoturbo.files.outputs import NO_OTHERS, Kind, Outputs
from autoturbo.files.writing import (
    LEFT,
    atomic_write,
    atomic_writer,
    check_writable,
    lock,
    take_away_left,
)

__all__ = [
    "JOBS",
    "LEFT",
    "MEMORY",
    "NODES",
    "NO_OTHERS",
    "ROUND",
    "Kind",
    "Limit",
    "Outputs",
    "atomic_write",
    "atomic_writer",
    "check_writable",
    "distinct",
    "is_bomb",
    "lock",
    "open_input",
    "parse_json",
    "read_json",
    "read_text",
    "take_away_left",
]
