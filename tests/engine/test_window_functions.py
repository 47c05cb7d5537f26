"""Window functions through the front door: random functions, frames, types and changes, beside Spark and DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_top import COLUMNS, NAMES, Row, rows_of, table
from tests.seeds import drawn

import headrace as hr
from headrace.engine.looking import Look
from headrace.relation.schema import DIFF
from headrace.testing.oracle import Oracle

NUMBERED = ["row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)"]
PARTS = ["", "PARTITION BY p ", "PARTITION BY s ", "PARTITION BY p, b "]
SMALL = {"n": ("INT", pa.int32(), [*range(-3, 9)]), "p": ("INT", pa.int32(), [1, 2, 3])}


def random_order(choose: random.Random, *, last: str = ", id") -> str:
    chosen = choose.sample([*COLUMNS, "n"], choose.randint(1, 2))
    named = (f"{n} {direction(choose)}" for n in chosen)
    return f"ORDER BY {', '.join(named)}{last}"


def direction(choose: random.Random) -> str:
    return f"{choose.choice(['ASC', 'DESC'])} NULLS {choose.choice(['FIRST', 'LAST'])}"


def random_frame(choose: random.Random) -> str:
    kinds = ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "3 FOLLOWING"]
    low = choose.randrange(5)
    high = choose.randrange(max(low, 1), 7)
    return f"ROWS BETWEEN {kinds[low]} AND {[*kinds, 'UNBOUNDED FOLLOWING'][high]}"


def random_value(choose: random.Random) -> str:
    part = choose.choice(PARTS)
    what = choose.randrange(6)
    if what == 0:
        return f"{choose.choice(NUMBERED)} OVER ({part}{random_order(choose)})"
    if what == 1:
        return (
            f"{choose.choice(['rank()', 'dense_rank()', 'cume_dist()'])} OVER ({part}{random_order(choose, last='')})"
        )
    if what == 2:
        value = choose.choice(["s", "i", "d", "u", "n"])
        default = choose.choice(["", ", 2"])
        return f"{choose.choice(['lag', 'lead'])}({value}{default}) OVER ({part}{random_order(choose)})"
    if what == 3:
        function, value = choose.choice(["first_value", "last_value"]), choose.choice(["s", "i", "x", "t", "n"])
        return f"{function}({value}) OVER ({part}{random_order(choose)} {random_frame(choose)})"
    if what == 4:
        low, high = choose.choice([0, 1, 4]), choose.choice([0, 2])
        bounds = f"RANGE BETWEEN {low} PRECEDING AND {high} FOLLOWING"
        function = choose.choice(["count(*)", "sum(n)", "min(s)", "max(u)", "avg(n)"])
        return f"{function} OVER ({part}ORDER BY n {direction(choose)} {bounds})"
    function = choose.choice(
        ["count(*)", "count(s)", "sum(n)", "sum(d)", "avg(n)", "min(i)", "max(s)", "min(x)", "max(t)"]
    )
    return f"{function} OVER ({part}{random_order(choose)} {random_frame(choose)})"


def near_values(choose: random.Random) -> list[str]:
    """Functions whose frames end some rows, or some distance, from their row: partitions are not read as a whole."""
    part = choose.choice(["", "PARTITION BY p "])
    if choose.random() < 0.5:
        order = f"ORDER BY {choose.choice(['n', 'd', 'u', 'x'])} {direction(choose)}, id"
        low, high = sorted([choose.randint(-3, 3), choose.randint(-3, 3)])
        frame = f"ROWS BETWEEN {bound(low)} AND {bound(high)}"
        shifts = [f"{choose.choice(['lag', 'lead'])}(n, {choose.randint(1, 4)}) OVER ({part}{order})"]
        return [f"{choose.choice(AGGREGATES)} OVER ({part}{order} {frame})", *choose.choice([[], shifts])]
    by = choose.choice(["n", "p"])
    low, high = sorted([choose.randint(-3, 3), choose.randint(-3, 3)])
    order = f"ORDER BY {by} {direction(choose)}"
    return [f"{choose.choice(AGGREGATES)} OVER ({part}{order} RANGE BETWEEN {bound(low)} AND {bound(high)})"]


AGGREGATES = ["count(*)", "sum(n)", "avg(n)", "max(u)", "min(i)", "count(x)"]


def bound(offset: int) -> str:
    return "CURRENT ROW" if offset == 0 else f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"


def random_query(choose: random.Random) -> str:
    if choose.random() < 0.35:
        values = ", ".join(f"{value} AS w{i}" for i, value in enumerate(near_values(choose)))
        return f"SELECT id, {values} FROM big"
    if choose.random() < 0.4:
        function = choose.choice(["row_number()", "rank()", "dense_rank()"])
        order = random_order(choose, last=", id" if function == "row_number()" else "")
        within = f"{function} OVER ({choose.choice(PARTS)}{order})"
        return (
            f"SELECT id, place FROM (SELECT id, {within} AS place FROM big) WHERE place <= {choose.choice([1, 2, 5])}"
        )
    values = ", ".join(f"{random_value(choose)} AS w{i}" for i in range(choose.randint(1, 3)))
    return f"SELECT id, {values} FROM big"


@pytest.mark.parametrize(
    ("executor", "seed"), [*(("inline", seed) for seed in drawn("over", 4)), ("spark", drawn("spark over", 1)[0])]
)
def test_window_functions_under_random_changes_are_those_of_spark_and_duckdb(
    spark: SparkSession, tmp_path: object, executor: str, seed: int
) -> None:
    choose = random.Random(seed)
    columns = COLUMNS | SMALL
    queries = [random_query(choose) for _ in range(6 if executor == "inline" else 2)]
    there: dict[int, Row] = {}
    where = f"{tmp_path}/s"
    engine = hr.Engine(spark, where, executor=executor, buckets=2)
    engine.table(
        "big", ", ".join(["id BIGINT NOT NULL", *(f"{n} {kind}" for n, (kind, _, _) in columns.items())]), key="id"
    )
    for number, query in enumerate(queries):
        engine.view(f"v{number}", query)
    engine.view("waits", queries[0], goal=hr.Manual())
    oracle, last = Oracle(spark), 0
    for step in range(5):
        changes: list[tuple[Row, int]] = []
        leaving = choose.choice([0, 1, 3, len(there) // 3, 2 * len(there) // 3])
        for row in choose.sample(list(there.values()), min(leaving, len(there))):
            changes.append((row, -1))
            del there[row[0]]
        for _ in range(choose.choice([1, 30, 80])):
            last += 1
            row = (last, *(None if choose.random() < 0.1 else choose.choice(pool) for _, _, pool in columns.values()))
            there[last] = row
            changes.append((row, 1))
        engine.memory_budget = choose.choice([None, None, 0])  # with 0, rows that views keep are made again
        engine.apply({"big": _table(changes)})
        if step == 2:
            engine.compact()
            engine.rebucket(3)
            engine.close()
            engine = hr.Engine(spark, where, executor=executor)
        engine.refresh("waits")
        big = _table([(row, 1) for row in there.values()]).drop_columns([DIFF])
        oracle.set_rows({"big": big})
        assert _rounded(engine.views["waits"].to_arrow()) == _rounded(engine.views["v0"].to_arrow()), queries[0]
        for number, query in enumerate(queries):
            view = engine.views[f"v{number}"]
            got = _rounded(view.to_arrow())
            assert got == _rounded(oracle.answer(query).cast(view.schema)), query
            with duckdb.connect() as database:
                database.register("big", big)
                assert got == _rounded(database.sql(query).to_arrow_table().cast(view.schema, safe=False)), query
    found = {name: _rounded(view.to_arrow()) for name, view in engine.views.items()}
    engine.close()
    with Look(Path(where)) as look:  # without Spark, from stored plans
        assert {name: _rounded(look.views[name].to_arrow()) for name in look.views} == found


def _table(rows: list[tuple[Row, int]]) -> pa.Table:
    known = table([(row[: len(NAMES)], diff) for row, diff in rows])
    for at, (name, (_, kind, _)) in enumerate(SMALL.items(), len(NAMES)):
        known = known.append_column(name, pa.array([row[at] for row, _ in rows], kind))
    return known


def _rounded(found: pa.Table) -> Counter[Any]:
    return Counter(
        tuple(repr(round(value, 9) + 0.0) if isinstance(value, float) else value for value in row)
        for row in rows_of(found).elements()
    )
