"""Streams: every row comes once, tables finish together, and only rows that are there are deleted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.datasets import DATASETS, stream
from headrace.errors import SchemaError

Bag = Counter[tuple[object, ...]]


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def numbered(sizes: list[int]) -> dict[str, pa.Table]:
    """Tables with rows that repeat, as bags have."""
    return {
        f"t{number}": pa.table({"x": np.arange(size) // 2, "y": [f"row {i // 2}" for i in range(size)]})
        for number, size in enumerate(sizes)
    }


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    batch=st.integers(1, 70),
    deletes=st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9]),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_every_row_is_inserted_once_and_deleted_only_while_it_is_there(
    sizes: list[int], batch: int, deletes: float, seed: int
) -> None:
    tables = numbered(sizes)
    inserted: dict[str, list[tuple[object, ...]]] = {name: [] for name in tables}
    present: dict[str, Bag] = {name: Counter() for name in tables}
    for number, changes in enumerate(stream(tables, batch, deletes, seed)):
        assert 0 < sum(table.num_rows for table in changes.values()) <= batch
        before = {name: bag.copy() for name, bag in present.items()}
        for name, table in changes.items():
            assert table.num_rows
            assert table.schema.names == [*tables[name].schema.names, "__diff"]
            assert table.schema.field("__diff").type == pa.int64()
            for *row, diff in rows(table):
                present[name][tuple(row)] += diff
                if diff == 1:
                    inserted[name].append(tuple(row))
                else:
                    assert (diff, number > 0) == (-1, True)
                    before[name][tuple(row)] -= 1
                    assert before[name][tuple(row)] >= 0, "deleted what no earlier batch has left"
    # The order of a table is kept, and without deletions the net rows are the table.
    assert inserted == {name: rows(table) for name, table in tables.items()}
    if not deletes:
        assert present == {name: Counter(rows(table)) for name, table in tables.items()}


def test_batches_are_full_but_the_last() -> None:
    sizes = [sum(table.num_rows for table in changes.values()) for changes in stream(numbered([700, 250, 50]), 96)]
    assert sizes == [96] * 10 + [40]
    assert len(list(stream(numbered([5, 3]), 1))) == 8


def test_tables_grow_in_step_and_finish_together() -> None:
    sizes = {"t0": 7000, "t1": 2500, "t2": 500}
    grown = dict.fromkeys(sizes, 0)
    for number, changes in enumerate(stream(numbered(list(sizes.values())), 100), start=1):
        for name, table in changes.items():
            grown[name] += table.num_rows
        for name, size in sizes.items():
            assert abs(grown[name] - size * number / 100) <= 1
    assert grown == sizes


def test_the_fraction_of_deletions() -> None:
    first, *others = stream(numbered([6000, 3000]), 100, deletes=0.25)
    assert all(set(table["__diff"].to_pylist()) == {1} for table in first.values())
    for changes in others[:-1]:
        diffs = np.concatenate([table["__diff"].to_numpy() for table in changes.values()])
        assert (len(diffs), (diffs < 0).sum()) == (100, 25)
    # Small batches carry fractions of a row on.
    single = [table["__diff"][0].as_py() for changes in stream(numbered([600]), 1, 0.25) for table in changes.values()]
    assert sum(diff < 0 for diff in single) == pytest.approx(len(single) / 4, abs=2)


def test_deletions_are_uniform() -> None:
    tables = {"a": pa.table({"x": range(8000)}), "b": pa.table({"x": range(2000)})}
    first_half: dict[str, int] = {"a": 0, "b": 0}
    deleted: dict[str, int] = {"a": 0, "b": 0}
    # One big batch, then one that deletes: each row of the first has the same chance.
    _, second, *_ = stream(tables, 5000, deletes=0.4, seed=3)
    for name, table in second.items():
        gone = table["x"].to_numpy()[table["__diff"].to_numpy() < 0]
        deleted[name] = len(gone)
        first_half[name] = int((gone < tables[name].num_rows / 4).sum())
    assert sum(deleted.values()) == 2000
    assert deleted["a"] == pytest.approx(1600, abs=80)
    assert first_half["a"] == pytest.approx(800, abs=80)


def test_the_same_seed_gives_the_same_stream() -> None:
    tables = DATASETS["retailer"].generate(0.002)
    one, two, other = (list(stream(tables, 300, 0.2, seed)) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_tables_in_many_chunks() -> None:
    whole = numbered([100])["t0"]
    chunked = pa.concat_tables([whole.slice(0, 33), whole.slice(33)])
    assert list(stream({"t": whole}, 7, 0.3)) == list(stream({"t": chunked}, 7, 0.3))


@pytest.mark.parametrize(("batch", "deletes"), [(0, 0.0), (10, 1.0), (10, -0.1), (10, float("nan"))])
def test_senseless_streams_are_refused_at_once(batch: int, deletes: float) -> None:
    with pytest.raises(SchemaError):
        stream(numbered([3]), batch, deletes)
