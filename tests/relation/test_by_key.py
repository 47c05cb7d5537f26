"""Changes by key under random batches, against a dictionary that takes one row after the other."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from tests.seeds import seeds

from headrace.relation.by_key import (
    DELETE,
    FROZEN,
    NO_DELETE,
    NO_UPDATE,
    OP,
    SEQUENCE,
    SEVERAL,
    TIED,
    UNORDERED,
    Wanted,
    resolve,
)
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run, merge
from headrace.relation.schema import Column, TableSchema
from headrace.relation.table import DUPLICATE, apply_changes
from headrace.relation.types import SqlType
from headrace.rings import COUNT

COLUMNS = [
    Column("a", SqlType("string")),
    Column("x", SqlType("double")),
    Column("b", SqlType("int")),
    Column("s", SqlType("string"), nullable=False),
]
TABLE = TableLayout(TableSchema.of("t", COLUMNS, key=("a", "b")), seed=11)
FROZEN_TABLE = TableLayout(TableSchema.of("t", COLUMNS, key=("a", "b"), append_only=True), seed=11)

Key = tuple[str | None, int | None]
Rest = tuple[float | None, str | None]
Asked = tuple[Key, Rest, str | None, int | None]  # key, the other columns, the operation, the place in the order


def given(rows: list[Asked], wanted: Wanted) -> pa.Table:
    columns = {
        "a": pa.array([key[0] for key, *_ in rows], pa.large_string()),
        "x": pa.array([rest[0] for _, rest, *_ in rows], pa.float64()),
        "b": pa.array([key[1] for key, *_ in rows], pa.int32()),
        "s": pa.array([rest[1] for _, rest, *_ in rows], pa.large_string()),
    }
    if wanted.has_op:
        columns[OP] = pa.array([op for *_, op, _ in rows], pa.large_string())
    if wanted.has_sequence:
        columns[SEQUENCE] = pa.array([place for *_, place in rows], pa.int64())
    return pa.table(columns)


def expected(before: dict[Key, Rest], rows: list[Asked], wanted: Wanted) -> tuple[dict[Key, Rest], Counter[str]]:
    """The rows afterwards, one change after the other, and the kinds of bad rows."""
    bad: Counter[str] = Counter()
    left = []
    for row in rows:
        key, rest, op, place = row
        word = "delete" if wanted.op == DELETE else "replace"
        if wanted.has_op:
            word = {"i": "insert", "u": "update", "d": "delete"}.get((op or "?").strip().lower()[:1], "?")
        if wanted.replaces and word in ("insert", "update"):
            word = "replace"
        if word == "?":
            bad["op"] += 1
        elif None in key or (rest[1] is None and word != "delete"):
            bad["NULL"] += 1
        elif wanted.has_sequence and place is None:
            bad[UNORDERED] += 1
        else:
            left.append((key, rest, word, place if wanted.has_sequence else 0))
    times = Counter((key, place) for key, _, _, place in left)
    after = dict(before)
    for key, rest, word, place in sorted(left, key=lambda row: row[3] or 0):
        if times[key, place] > 1:
            bad[TIED if wanted.has_sequence else SEVERAL] += 1
        elif word == "insert" and key in after:
            bad[DUPLICATE] += 1
        elif word in ("update", "delete") and key not in after:
            if not wanted.ignores_missing:
                bad[NO_UPDATE if word == "update" else NO_DELETE] += 1
        elif word == "delete":
            del after[key]
        else:
            after[key] = rest
    return after, bad


def rows_of(layout: TableLayout, runs: list[Run]) -> dict[Key, Rest]:
    merged = merge(COUNT, runs) if runs else None
    if merged is None or not merged.rows:
        return {}
    assert merged.payload[0].tolist() == [1] * merged.rows
    columns = layout.rows(merged)
    rows = zip(*(columns[name].to_pylist() for name in ("a", "b", "x", "s")), strict=True)
    return {(a, b): (x, s) for a, b, x, s in rows}


def random_rows(rng: random.Random, count: int) -> list[Asked]:
    def row() -> Asked:
        key = rng.choice(["", "a", "b", None] if rng.random() < 0.1 else ["", "a", "b"]), rng.randrange(8)
        rest = rng.choice([None, 0.0, 1.5]), rng.choice(["", "u", "v", None] if rng.random() < 0.2 else ["", "u"])
        op = rng.choice(["I", "u", " Insert", "UPDATE", "d", "delete", "D", "x", None])
        return key, rest, op, rng.choice([None, *range(30)])

    return [row() for _ in range(count)]


@seeds("changes by key", 40, check=4)
def test_a_batch_does_what_its_rows_do_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    runs: list[Run] = []
    there: dict[Key, Rest] = {}
    for _ in range(12):
        wanted = Wanted(
            op=rng.choice([0, 0, DELETE]),
            has_op=rng.random() < 0.6,
            replaces=rng.random() < 0.5,
            has_sequence=rng.random() < 0.5,
            ignores_missing=rng.random() < 0.5,
        )
        rows = random_rows(rng, rng.choice([0, 1, 3, 20]))
        table = given(rows, wanted)
        after, bad = expected(there, rows, wanted)
        found = resolve(TABLE, runs, wanted, table)
        reasons = Counter() if found.bad is None else Counter(map(_kind, found.bad.reasons))
        assert reasons == bad
        changed = {key for key in {*there, *after} if there.get(key) != after.get(key)}
        assert len(found.batch) == sum((key in there) + (key in after) for key in changed)  # and nothing for others
        change = apply_changes(TABLE, runs, found.batch, TABLE.words(found.batch.rows))
        assert change.bad is None
        runs = [*runs, change.run] if rng.random() < 0.8 else [merge(COUNT, [*runs, change.run])]
        there = after
        assert rows_of(TABLE, runs) == there


def _kind(reason: str) -> str:
    return "op" if reason.startswith("its operation") else "NULL" if reason.startswith("NULL") else reason


@pytest.mark.parametrize("op", ["I", "U", "D"])
def test_an_append_only_table_takes_what_leaves_its_rows(op: str) -> None:
    start = [(("a", 1), (1.0, "u"), None, None)]
    first = resolve(FROZEN_TABLE, [], Wanted(), given(start, Wanted()))
    runs = [apply_changes(FROZEN_TABLE, [], first.batch, FROZEN_TABLE.words(first.batch.rows)).run]
    wanted = Wanted(has_op=True, replaces=True)
    rows: list[Asked] = [(("a", 1), (2.0, "u"), op, None), (("b", 1), (2.0, "u"), "I", None)]
    found = resolve(FROZEN_TABLE, runs, wanted, given(rows, wanted))
    assert found.bad is not None
    assert list(found.bad.reasons) == [FROZEN]
    assert found.batch.rows.column("a").to_pylist() == ["b"]
    same = resolve(FROZEN_TABLE, runs, Wanted(), given(start, Wanted()))
    assert same.bad is None
    assert not len(same.batch)
