"""Rows that are deleted again: as many in each part as a share of the rows that it brings, drawn from earlier parts.

Keys stay as TPC-H has them. Only tables lose rows to which no other table of the query refers: lineitem, if the query
reads it; otherwise orders or partsupp, and so on. So no row is left that refers to one that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS

_SEED = 11


def deletable(tables: Iterable[str]) -> set[str]:
    """Those of some tables of TPC-H to which no other of them refers.

    >>> sorted(deletable(["customer", "orders"])), sorted(deletable(["customer", "orders", "lineitem"]))
    (['orders'], ['lineitem'])
    """
    names = set(tables)
    return names - {to for name in names for _, to in TPCH_SCHEMAS[name].references}


def changes(table: pa.Table, ends: Sequence[int]) -> list[pa.Table]:
    """The rows of each step, which insert all rows up to its end."""
    return [table.slice(first, end - first) for first, end in _steps(ends)]


def with_deletes(table: pa.Table, ends: Sequence[int], share: float) -> tuple[list[pa.Table], pa.Table]:
    """The changes of each step, which inserts all rows up to its end and deletes some of before; and what is left."""
    there, owed, random, found = np.ones(table.num_rows, bool), 0.0, np.random.default_rng(_SEED), []
    for first, end in _steps(ends):
        owed += share * (end - first) if first else 0.0
        earlier = np.flatnonzero(there[:first])
        gone = np.sort(random.choice(earlier, min(int(owed), len(earlier)), replace=False))
        owed -= int(owed)  # what makes no whole row is owed to the next step
        there[gone] = False
        found.append(pa.concat_tables([_signed(table.slice(first, end - first), 1), _signed(table.take(gone), -1)]))
    return found, table.filter(pa.array(there))


def _steps(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip((0, *ends), ends, strict=False))


def _signed(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.array(np.full(rows.num_rows, diff, np.int64)))
