"""Rows read back from runs, some columns at a time: those that a Counter has, whatever was inserted and deleted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation import runfile
from headrace.relation.change import change_batch
from headrace.relation.layout import TableLayout
from headrace.relation.reading import read_rows
from headrace.relation.run import Run, merge
from headrace.relation.schema import Column, TableSchema
from headrace.relation.storedrun import StoredRun
from headrace.relation.table import apply_changes
from headrace.relation.types import SqlType
from headrace.rings import COUNT

COLUMNS = [
    Column("id", SqlType("bigint")),
    Column("name", SqlType("string")),
    Column("day", SqlType("date")),
    Column("x", SqlType("double")),
]
NAMES = [column.name for column in COLUMNS]
LAYOUTS = {
    key: TableLayout(TableSchema.of("t", COLUMNS, key=key), seed=5) for key in (None, "id", "name", ("day", "name"))
}
ROW = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["", "a", "é"]),
    st.integers(0, 2),
    st.sampled_from([0.5, float("inf"), None]),
)
Row = tuple[int, str, int, float | None]


class Model:
    """Rows that are there, as Python knows them."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.rows: Counter[Row] = Counter()
        self.runs: list[Run] = []

    def step(self, come: list[Row], leave: int) -> None:
        """Have some rows leave, and others come where their key is free; store what changed as a run."""
        changes: Counter[Row] = Counter()
        for row in sorted(self.rows, key=repr)[:leave]:
            changes[row] -= 1
        left = self.rows.copy()
        left.update(changes)
        for row in come:
            if not self.layout.schema.key or not any(
                self._key(row) == self._key(other) for other, n in left.items() if n
            ):
                left[row] += 1
                changes[row] += 1
        changed = [(row, n) for row, n in changes.items() if n]
        self.rows = +left
        if changed:
            columns = zip(*(row for row, _ in changed), strict=True)
            arrays = [pa.array(c, t.type.arrow) for c, t in zip(columns, COLUMNS, strict=True)]
            given = pa.table([*arrays, pa.array([n for _, n in changed])], names=[*NAMES, "__diff"])
            batch = change_batch(self.layout.schema, given)
            done = apply_changes(self.layout, self.runs, batch, self.layout.words(batch.rows))
            assert done.bad is None
            self.runs.append(done.run)

    def _key(self, row: Row) -> tuple[object, ...]:
        return tuple(row[NAMES.index(name)] for name in self.layout.schema.key)

    def projected(self, names: list[str]) -> Counter[tuple[object, ...]]:
        out: Counter[tuple[object, ...]] = Counter()
        for row, n in self.rows.items():
            out[tuple(row[NAMES.index(name)] for name in names)] += n
        return out


def stored(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


def read(layout: TableLayout, runs: list[StoredRun], names: list[str], most: int) -> Counter[tuple[object, ...]]:
    out: Counter[tuple[object, ...]] = Counter()
    for batch in read_rows(layout, runs, names, most):
        assert batch.rows.column_names == names
        assert (batch.diff > 0).all()
        assert 0 < len(batch) <= most * len(runs)
        columns = [column.cast(pa.int32()) if column.type == pa.date32() else column for column in batch.rows.columns]
        rows = list(zip(*(column.to_pylist() for column in columns), strict=True)) or [()] * len(batch)
        for row, n in zip(rows, batch.diff.tolist(), strict=True):
            out[row] += n
    return out


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(list(LAYOUTS)),
    st.lists(st.tuples(st.lists(ROW, max_size=8), st.integers(0, 4)), max_size=5),
    st.sets(st.sampled_from(NAMES)),
    st.sampled_from([1, 3, 1000]),
)
def test_what_is_read_is_what_is_there(key, steps, wanted, most):
    model = Model(LAYOUTS[key])
    for come, leave in steps:
        model.step(come, leave)
    names = [name for name in NAMES if name in wanted]
    assert read(model.layout, [stored(run) for run in model.runs], names, most) == model.projected(names)


def big(rows: int) -> tuple[TableLayout, Run]:
    layout = LAYOUTS["id"]
    table = pa.table(
        {
            "id": np.arange(rows),
            "name": [f"name {i % 7}" for i in range(rows)],
            "day": pa.array(np.arange(rows) % 100, pa.int32()).cast(pa.date32()),
            "x": np.arange(rows) / 4,
        }
    )
    batch = change_batch(layout.schema, table)
    return layout, apply_changes(layout, [], batch, layout.words(batch.rows)).run


def test_runs_that_only_insert_are_neither_merged_nor_copied():
    layout, run = big(5000)
    file = stored(run)
    start, end = file.data.ctypes.data, file.data.ctypes.data + len(file.data)
    batches = list(read_rows(layout, [file], ["name", "x"], 2048))
    assert [len(batch) for batch in batches] == [2048, 2048, 904]
    for batch in batches:
        for column in batch.rows.columns:
            assert start <= column.chunk(0).buffers()[1].address < end
        assert start <= batch.diff.ctypes.data < end


def test_a_row_that_left_is_given_to_nobody():
    layout, run = big(3000)
    gone = run.take(np.arange(0, 3000, 3))
    negative = Run(gone.words, (-gone.payload[0],), gone.values)
    files = [stored(run), stored(negative)]
    batches = list(read_rows(layout, files, ["id"], 1024))
    ids = np.concatenate([batch.rows["id"].to_numpy() for batch in batches])
    assert sorted(ids.tolist()) == [i for i in range(3000) if i % 3]
    assert merge(COUNT, files).rows == len(ids)


@pytest.mark.parametrize("runs", [[], [Run(np.zeros((2, 0), np.uint64), (np.zeros(0, np.int64),), {})]])
def test_nothing_is_read_from_nothing(runs):
    assert list(read_rows(LAYOUTS["id"], [stored(run) for run in runs], ["id"], 10)) == []
