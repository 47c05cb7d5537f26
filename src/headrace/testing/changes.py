"""Random change streams: a model of a table that produces valid insertions, updates and deletions.

The model is a plain list of rows, so it doubles as the oracle's copy of the table.
"""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.relation.schema import DIFF, TableSchema
from headrace.relation.types import SqlType

_WORDS = ["", "a", "A", "ab", "abc", "b", "zebra", "Ω", "日本", "a\x00b", "long enough to need several words of a key"]


class TableModel:
    """The rows a table should have, and random changes to them.

    Parameters
    ----------
    spread : how many different values a column takes; few make groups and collisions, many make them rare.
    """

    def __init__(self, schema: TableSchema, rng: random.Random, *, spread: int = 6) -> None:
        self.schema = schema
        self.rng = rng
        self.spread = spread
        self.rows: list[tuple[Any, ...]] = []

    def change(self, size: int) -> pa.Table:
        """Draw a valid change batch of about `size` rows, apply it to the model, and return it."""
        changes: list[tuple[tuple[Any, ...], int]] = []
        for _ in range(size):
            roll = self.rng.random()
            if self.rows and roll < 0.3:
                changes.append((self.rows.pop(self.rng.randrange(len(self.rows))), -1))
            elif self.rows and roll < 0.5:
                at = self.rng.randrange(len(self.rows))
                new = self._row(like=self.rows[at])
                changes += [(self.rows[at], -1), (new, 1)]
                self.rows[at] = new
            else:
                row = self._row()
                if row is not None:
                    changes.append((row, 1))
                    self.rows.append(row)
        self.rng.shuffle(changes)
        return self._table([row for row, _ in changes], [diff for _, diff in changes])

    def to_arrow(self) -> pa.Table:
        """The rows the table should have now."""
        return self._table(self.rows, None)

    def _table(self, rows: list[tuple[Any, ...]], diff: list[int] | None) -> pa.Table:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.schema.columns)
        table = pa.table(
            [
                pa.array(list(values), column.type.arrow)
                for values, column in zip(columns, self.schema.columns, strict=True)
            ],
            names=self.schema.names,
        )
        return table if diff is None else table.append_column(DIFF, pa.array(diff, pa.int64()))

    def _row(self, like: tuple[Any, ...] | None = None) -> Any:
        keys = set(self.schema.key)
        taken = {self._key(row) for row in self.rows} if keys and like is None else set()
        for _ in range(50):
            row = tuple(
                like[i]
                if like is not None and column.name in keys
                else self._value(column.type, column.nullable, column.name in keys)
                for i, column in enumerate(self.schema.columns)
            )
            if not keys or like is not None or self._key(row) not in taken:
                return row
        return None

    def _key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value for value, column in zip(row, self.schema.columns, strict=True) if column.name in self.schema.key
        )

    def _value(self, kind: SqlType, nullable: bool, wide: bool) -> Any:
        if nullable and self.rng.random() < 0.15:
            return None
        number = self.rng.randrange(-self.spread, self.spread) if not wide else self.rng.randrange(-500, 500)
        if kind.is_integer:
            bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[kind.kind]
            edge = self.rng.random() < 0.03 and kind.kind != "bigint"
            return 2**bits - 1 if edge else max(-(2**bits), min(number, 2**bits - 1))
        if kind.is_floating:
            return number / 64 * 3  # dyadic, so that any order of summation is exact in Spark too
        if kind.is_decimal:
            largest = 10 ** min(kind.precision, 15) - 1
            return Decimal(number * largest // (500 if wide else self.spread)).scaleb(-kind.scale)
        if kind.kind == "string":
            return _WORDS[number % len(_WORDS)] + (str(number) if wide else "")
        if kind.kind == "date":
            return datetime.date(2024, 2, 28) + datetime.timedelta(days=number)
        if kind.kind == "boolean":
            return number % 2 == 0
        moment = datetime.datetime(2024, 3, 1, 12) + datetime.timedelta(hours=number, microseconds=number)
        return moment.replace(tzinfo=datetime.UTC) if kind.kind == "timestamp" else moment
