"""Random case files: rows with NULLs and duplicates, changes of them, and random queries over both."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.logic.case_file import CaseFile, Columns, Query, Step, Table
from tests.logic.random_queries import INT, TABLES, Piece, Queries
from tests.logic.values import Row

WORDS = ("", "a", "b", "ab", "B")


def random_case(rng: random.Random, *, queries: int, steps: int, rows: int = 10, depth: int = 3) -> CaseFile:
    """A case file without answers: random rows, random changes, random queries.

    Parameters
    ----------
    rows : about how many rows a table starts with; it may be empty too.
    depth : how many SELECTs may stand in each other.
    """
    model = _Tables(rng, rows)
    tables = tuple(
        Table(name, Columns.parse(", ".join(f"{c} {k}" for c, k in columns)), (), tuple(model.now[name]))
        for name, columns in TABLES.items()
    )
    done = tuple(Step("", _signed(model.changes(rng.choice([1, 3, 8])))) for _ in range(steps))
    pieces = [Queries(rng).query(rng.randint(1, depth)) for _ in range(queries)]
    asked = tuple(Query(f"q{i}", piece.sql, piece.ordered, columns_of(piece)) for i, piece in enumerate(pieces))
    return CaseFile("random", tables, done, asked)


def columns_of(piece: Piece) -> Columns:
    """The columns that a view of the piece has to have."""
    return Columns.parse(", ".join(f"{name} {kind}" for name, kind in piece.columns))


class _Tables:
    """The rows of all tables as they are now, and random changes of them."""

    def __init__(self, rng: random.Random, rows: int) -> None:
        self.rng = rng
        self.now: dict[str, list[Row]] = {
            name: [self._row(name) for _ in range(0 if rng.random() < 0.1 else rng.randint(rows // 2, rows * 3 // 2))]
            for name in TABLES
        }

    def changes(self, most: int) -> dict[str, Counter[Row]]:
        """Insertions, deletions and updates of some tables; now and then a table loses all its rows."""
        out: dict[str, Counter[Row]] = {}
        for name in self.rng.sample(list(TABLES), self.rng.randint(1, len(TABLES))):
            rows, changed = self.now[name], Counter[Row]()
            if rows and self.rng.random() < 0.1:
                changed.subtract(rows)
                rows.clear()
            for _ in range(self.rng.randint(1, most)):
                if rows and self.rng.random() < 0.4:
                    changed[rows.pop(self.rng.randrange(len(rows)))] -= 1
                if not rows or self.rng.random() < 0.8:
                    row = self.rng.choice(rows) if rows and self.rng.random() < 0.15 else self._row(name)
                    changed[row] += 1
                    rows.append(row)
            out[name] = changed
        return out

    def _row(self, name: str) -> Row:
        return tuple(self._value(kind) for _, kind in TABLES[name])

    def _value(self, kind: str) -> Any:
        if self.rng.random() < 0.15:
            return None
        return self.rng.randint(-2, 4) if kind == INT else self.rng.choice(WORDS)


def _signed(changes: dict[str, Counter[Row]]) -> dict[str, tuple[tuple[Row, int], ...]]:
    kept = {name: tuple((row, n) for row, n in counts.items() if n) for name, counts in changes.items()}
    return {name: rows for name, rows in kept.items() if rows}
