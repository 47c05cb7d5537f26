"""Random queries under random changes: every view equals a recomputation, however the changes come."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from tests.logic.case_file import CaseFile, Query, Step, text_of
from tests.logic.expect import expected
from tests.logic.random_cases import random_case
from tests.logic.runner import run
from tests.logic.values import Row, in_order, row_text, same_rows
from tests.seeds import seeds

from headrace.testing.oracle import Oracle

# Parts of refusals that are documented: a random query that meets one of them proves nothing.
REFUSED = (
    "a query without a table",  # Spark knows it to be empty whatever its tables hold
    "a scalar subquery over a row of a joined subquery",  # Spark makes no join of it
    "a window function (OVER)",  # Spark numbers the rows of a subquery with a LIMIT for every outer row
)
TIMES = 20 if os.environ.get("HEADRACE_SLOW") == "1" else 1
FLOOR = 0.8  # how many of all random queries have to be checked rather than refused; about 0.93 are

tried: dict[bool, int] = {True: 0, False: 0}  # how many queries were checked, and how many refused


def recomputed(case: CaseFile) -> CaseFile:
    """The case with DuckDB's answers: it takes milliseconds for a query, where Spark takes a good part of a second."""
    answers: dict[str, list[tuple[Row, ...]]] = {query.name: [] for query in case.queries}
    with duckdb.connect(config={"threads": 1}) as oracle:
        for step in range(len(case.steps) + 1):
            for name, rows in case.rows(step).items():
                oracle.register(name, rows)
            for query in case.queries:
                answers[query.name].append(tuple(oracle.execute(query.sql).fetchall()))
    return replace(case, queries=tuple(replace(q, answers=tuple(answers[q.name])) for q in case.queries))


def check(spark: SparkSession, folder: pytest.TempPathFactory, case: CaseFile, **how: Any) -> None:
    wrong = run(spark, case, folder.mktemp("random"), **how)
    refused = [name for name, text in wrong.items() if text.startswith("UnsupportedSQLError")]
    tried[False] += len(refused)
    tried[True] += len(case.queries) - len(refused)
    for name in [name for name in wrong if name not in refused] + refused:  # a wrong answer says more than a refusal
        if not any(known in wrong[name] for known in REFUSED):
            pytest.fail(f"{wrong[name]}\n\nAs a case file:\n\n{text_of(case.only(name))}", pytrace=False)


@pytest.mark.xdist_group("random queries")
@seeds("random queries", 15 * TIMES, check=3, kept=(4012653457, 2087891061, 3194571471))
def test_incremental_equals_recomputed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    case = random_case(random.Random(seed), queries=8, steps=4)
    check(spark, tmp_path_factory, recomputed(case))


@pytest.mark.xdist_group("random queries")
@seeds("random batches", 5 * TIMES, kept=(903045850, 2903665294))
def test_one_batch_equals_its_rows_one_by_one(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    case = random_case(random.Random(seed), queries=5, steps=3, rows=6)
    batch, singles = recomputed(one_batch(case)), recomputed(one_by_one(case))
    for one, other in zip(batch.queries, singles.queries, strict=True):
        assert same_rows(in_order(one.answers[-1]), in_order(other.answers[-1]))
    check(spark, tmp_path_factory, batch)
    check(spark, tmp_path_factory, singles)


@pytest.mark.xdist_group("random queries")
@seeds("random paces", 10 * TIMES, check=2, kept=(4196616382,))
def test_paced_equals_recomputed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng, queries=8, steps=8)
    check(spark, tmp_path_factory, recomputed(case), paced=rng, restart=rng.random() < 0.5)


@pytest.mark.check
@pytest.mark.xdist_group("random queries")
def test_most_random_queries_were_checked() -> None:
    total = sum(tried.values())
    if total < 20:
        pytest.skip("too few were tried")
    assert tried[True] >= FLOOR * total, f"{tried[False]} of {total} random queries were refused"


def one_batch(case: CaseFile) -> CaseFile:
    """All steps as one: what came and left again is not in it at all."""
    net: dict[str, Counter[Row]] = {}
    for step in case.steps:
        for name, changes in step.changes.items():
            for row, times in changes:
                net.setdefault(name, Counter())[row] += times
    kept = {name: tuple((row, n) for row, n in counts.items() if n) for name, counts in net.items()}
    return replace(case, steps=(Step("all at once", {name: rows for name, rows in kept.items() if rows}),))


def one_by_one(case: CaseFile) -> CaseFile:
    """A step for every single row that comes or leaves."""
    singles = [
        Step(f"{name}, {row_text(row)}", {name: ((row, 1 if times > 0 else -1),)})
        for step in case.steps
        for name, changes in step.changes.items()
        for row, times in changes
        for _ in range(abs(times))
    ]
    return replace(case, steps=tuple(singles))


@seeds("oracles", 2 * TIMES, check=0, kept=(3309497879,))
def test_the_oracles_agree(spark: SparkSession, seed: int) -> None:
    case = recomputed(random_case(random.Random(seed), queries=12, steps=0))
    by_spark = expected(Oracle(spark), case)
    for query in case.queries:
        assert_equal(by_spark[query.name], query)


def assert_equal(one: Query, other: Query) -> None:
    assert str(one.columns) == str(other.columns), one.sql
    for left, right in zip(one.answers, other.answers, strict=True):
        pair = (left, right) if one.ordered else (in_order(left), in_order(right))
        assert same_rows(*pair), f"{one.sql}\nSpark  {pair[0]}\nDuckDB {pair[1]}"
