"""The tables of a refresh stream: which rows are there, which are away for a while, and the step that is being made.

All rows that ever came stay where they are and are marked as they leave, so that a step costs little beside a large
table: what changes is gathered, and nothing else is copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS

Numbers = NDArray[np.int64]

_KEYS_USED, _KEYS_IN_ALL = 8, 32  # dbgen uses so many of so many keys of orders


def key_numbers(name: str, rows: pa.Table) -> Numbers:
    """Return the key of each row as one number; one of two columns has the first in its upper half."""
    first, *second = (rows[column].to_numpy().astype(np.int64) for column in TPCH_SCHEMAS[name].key)
    keys: Numbers = first << 32 | second[0] if second else first
    return keys


class Rows:
    """All rows that a table has had, numbered in the order in which they came, and which of them are there."""

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self._pieces = [table.combine_chunks()]
        self.keys = key_numbers(name, table)
        self.there = np.ones(table.num_rows, np.bool_)
        self.away = np.zeros(0, np.int64)  # rows that left and are to come back

    def take(self, numbers: Numbers) -> pa.Table:
        """Return rows, in ascending order of their numbers."""
        numbers, start, taken = np.sort(numbers), 0, []
        for piece in self._pieces:
            end = start + piece.num_rows
            taken.append(piece.take(pa.array(numbers[(numbers >= start) & (numbers < end)] - start)))
            start = end
        return pa.concat_tables(taken)

    def add(self, rows: pa.Table) -> None:
        self._pieces.append(rows.combine_chunks())
        self.keys = np.append(self.keys, key_numbers(self.name, rows))
        self.there = np.append(self.there, np.ones(rows.num_rows, np.bool_))


class State:
    """The tables of a stream, and the changes of the step that is being made.

    Rows that come are added when the step is finished, so that it cannot change them again.
    """

    def __init__(self, tables: Mapping[str, pa.Table], share: float, random: np.random.Generator) -> None:
        self.rows = {name: Rows(name, table) for name, table in tables.items()}
        self.counts = {name: max(1, round(share * table.num_rows)) for name, table in tables.items()}
        self.random = random
        self.turn = 0  # of what happens to nations and regions
        self._order_keys = _gaps_used(np.append(self.rows["orders"].keys, self.rows["lineitem"].keys >> 32))
        self._left: dict[str, list[pa.Table]] = {}
        self._came: dict[str, list[pa.Table]] = {}
        self._away: dict[str, Numbers] = {}

    def draw(self, name: str, count: int | None = None) -> Numbers:
        """Draw rows that are there, as many as one kind of change touches unless told."""
        there = np.flatnonzero(self.rows[name].there)
        count = min(self.counts[name] if count is None else count, len(there))
        return np.sort(there[self.random.choice(len(there), count, replace=False)])

    def lineitems_of(self, orders: Numbers) -> Numbers:
        """Find the lineitems of orders, given by their keys."""
        lineitem = self.rows["lineitem"]
        return np.flatnonzero(lineitem.there & np.isin(lineitem.keys >> 32, orders))

    def order_keys(self, count: int) -> Numbers:
        """Number new orders in the gaps between dbgen's keys."""
        numbers = np.arange(self._order_keys, self._order_keys + count)
        self._order_keys += count
        gap = _KEYS_IN_ALL - _KEYS_USED
        return numbers // gap * _KEYS_IN_ALL + _KEYS_USED + numbers % gap

    def leave(self, name: str, numbers: Numbers, *, for_a_while: bool = False) -> pa.Table:
        rows = self.rows[name].take(numbers)
        self.rows[name].there[numbers] = False
        self._left.setdefault(name, []).append(rows)
        if for_a_while:
            self._away[name] = np.append(self._away.get(name, np.zeros(0, np.int64)), numbers)
        return rows

    def come(self, name: str, rows: pa.Table) -> None:
        self._came.setdefault(name, []).append(rows)

    def back(self, name: str, *, every: bool = False) -> pa.Table:
        """Choose half of those that are to come back (rounded up), or all; they are not away any longer."""
        away = self.rows[name].away
        mixed = self.random.permutation(away)
        chosen = len(away) if every else (len(away) + 1) // 2
        self.rows[name].away = mixed[chosen:]
        return self.rows[name].take(mixed[:chosen])

    def finish(self) -> dict[str, pa.Table]:
        """Return the changes of the step, and begin another."""
        changes = {}
        for name, table in self.rows.items():
            none = TPCH_SCHEMAS[name].schema.empty_table()
            left, came = (pa.concat_tables([none, *side.pop(name, [])]) for side in (self._left, self._came))
            if came.num_rows:
                table.add(came)
            table.away = np.append(table.away, self._away.pop(name, np.zeros(0, np.int64)))
            if left.num_rows or came.num_rows:
                diff = np.repeat(np.array([-1, 1], np.int64), [left.num_rows, came.num_rows])
                rows = pa.concat_tables([left, came]).combine_chunks()
                changes[name] = rows.append_column(DIFF, pa.array(diff))
        return changes


def _gaps_used(keys: Numbers) -> int:
    """Count the keys up to the highest that an earlier stream has taken from the gaps."""
    taken = keys[keys % _KEYS_IN_ALL >= _KEYS_USED]
    gap = _KEYS_IN_ALL - _KEYS_USED
    return int((taken // _KEYS_IN_ALL * gap + taken % _KEYS_IN_ALL - _KEYS_USED).max() + 1) if len(taken) else 0
