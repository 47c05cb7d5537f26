"""How first-order and recursive deltas take part in a run whose size they cannot manage: in pieces, until a limit.

They list rows of the join, so a batch of a million rows may not fit in memory, and takes far longer than a time limit
that is looked at between batches. Given in pieces, they stop soon after it, and say how much of the stream they saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.bench.covariance.batch_files import Batches

LIMIT = 60.0  # seconds per baseline
PIECE = 100_000  # rows


@dataclass
class Pieces:
    """A stream of batches in files, each read in pieces of at most so many rows; in one piece, without a bound."""

    batches: Batches
    most: float = float("inf")
    rows: tuple[int, ...] = field(init=False)  # of each piece
    _at: list[tuple[int, int, int]] = field(init=False)  # of each piece: its batch, which piece of how many
    _read: tuple[int, dict[str, pa.Table]] = field(init=False, default=(-1, {}))

    def __post_init__(self) -> None:
        self._at, rows = [], []
        for number, size in enumerate(self.batches.rows):
            parts = max(1, -int(-size // self.most))
            self._at += [(number, k, parts) for k in range(parts)]
            rows += [size * (k + 1) // parts - size * k // parts for k in range(parts)]
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def full(self) -> int:
        """The number of pieces of full batches."""
        return sum(number < self.batches.full for number, _, _ in self._at)

    def read(self, number: int) -> dict[str, pa.Table]:
        """Read one piece; its file is read with the first piece of its batch."""
        batch, k, parts = self._at[number]
        if parts == 1:
            return self.batches.read(batch)
        if self._read[0] != batch:
            self._read = batch, self.batches.read(batch)
        return _part(self._read[1], self.batches.rows[batch], k, parts)

    def whole(self, count: int) -> int:
        """How many batches the first `count` pieces are; 0 if they end within a batch."""
        batch, k, parts = self._at[count - 1]
        return batch + 1 if k + 1 == parts else 0


def _part(changes: dict[str, pa.Table], size: int, k: int, parts: int) -> dict[str, pa.Table]:
    """One of so many parts, with the tables one after the other as if they were one."""
    first, end = size * k // parts, size * (k + 1) // parts
    found, seen = {}, 0
    for name, rows in changes.items():
        start, stop = max(first - seen, 0), min(end - seen, rows.num_rows)
        if start < stop:
            found[name] = rows.slice(start, stop - start)
        seen += rows.num_rows
    return found


def how_far(seconds: float, rows: int, total: int) -> dict[str, Any]:
    """What the row of a run that its time limit ended says of itself."""
    return {} if rows == total else {"stopped": f"{seconds:,.0f} s were over with {rows / total:.0%} of the rows"}
