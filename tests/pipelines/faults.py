"""A world whose sink can be made to lie: the rows of what the log holds are changed before they are committed."""

from __future__ import annotations

from collections.abc import Callable

from consumers.columns import RowBuffer
from consumers.folding import Folding
from consumers.rows import Row
from schemas.tables import TABLES
from schemas.topics import TOPICS
from tests.training.world import World

Tamper = Callable[[list[Row]], list[Row]]


class Tampered(World):
    def pour(self, tamper: Tamper) -> None:
        """What the sink does with a home that has no lake yet, but for `tamper`."""
        self.lake.bind(self.log.identity)
        ends, rows, folding = self.log.ends(TOPICS), RowBuffer(), Folding(self.artifacts)
        told: list[Row] = []
        reader = self.log.subscribe(TOPICS)
        while any(reader.position(part) < end for part, end in ends.items()):
            for record in reader.poll():
                told += folding.rows(record)
        reader.close()
        rows.add(tamper(told))
        filled = {part: end for part, end in ends.items() if end}
        self.lake.commit(rows.tables(), dict.fromkeys(filled, 0), filled)


def column(row: Row, name: str) -> object:
    return row.values[TABLES[row.table].names.index(name)]


def changed(row: Row, **values: object) -> Row:
    names = TABLES[row.table].names
    return Row(row.table, tuple(values.get(name, value) for name, value in zip(names, row.values, strict=True)))


def first_of(rows: list[Row], table: str, **values: object) -> int:
    """Index of the first row of a table with these values."""
    return next(index for index, row in enumerate(rows)
                if row.table == table and all(column(row, name) == value for name, value in values.items()))
