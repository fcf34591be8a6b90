"""Tables of commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def titled_table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """A table with its title at the left."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table
