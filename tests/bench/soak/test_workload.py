"""The changes of a soak: as many rows after each as before, also when they go on with what a location gives back."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.seeds import seeds

from headrace.bench.soak.workload import CUSTOMERS, ORDERS, Changes
from headrace.relation.schema import DIFF


def counted(table: pa.Table, sign: int = 1) -> Counter[tuple[object, ...]]:
    rows = table.drop_columns([DIFF]) if DIFF in table.column_names else table
    signs = table.column(DIFF).to_pylist() if DIFF in table.column_names else [1] * table.num_rows
    found: Counter[tuple[object, ...]] = Counter()
    for row, diff in zip(rows.to_pylist(), signs, strict=True):
        found[tuple(row.values())] += sign * diff
    return found


def as_an_engine_gives_them(table: pa.Table) -> pa.Table:
    fields = [field.with_type(pa.large_string()) if field.type == pa.string() else field for field in table.schema]
    return table.cast(pa.schema([fields[0].with_nullable(False), *fields[1:]]))


@pytest.mark.check
@seeds("changes of a soak", 2)
def test_a_change_leaves_as_many_rows_and_only_takes_what_is_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    empty = Changes(rng, {"orders": Changes.orders_of(rng, 0, 0), "customers": Changes.customers_of(rng, np.arange(0))})
    there = {name: counted(rows) for name, rows in empty.filling().items()}
    changes = empty
    for turn in range(6):
        if turn == 3:  # another process goes on
            changes = Changes(rng, {name: as_an_engine_gives_them(rows) for name, rows in changes.rows.items()})
        for name, change in {"orders": changes.orders(60), "customers": changes.customers(5)}.items():
            there[name].update(counted(change))
            assert min(there[name].values()) >= 0
            there[name] = +there[name]
            assert there[name] == counted(changes.rows[name])
        keys = [row[0] for row in there["orders"]]
        assert len(keys) == len(set(keys)) == ORDERS
        assert len(there["customers"]) == CUSTOMERS
    known = {row[0] for row in there["orders"]}
    assert known.isdisjoint(changes.bad(3).column("id").to_pylist())
