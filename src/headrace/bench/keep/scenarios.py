"""What the benchmark measures: the experiments of the CrocodileDB thesis on state under a budget (Figures 5.3 to 5.9).

Each scenario gives rows of results, one per approach and case, with the seconds of a change, the total seconds from the
first answer to the last change, and the bytes that are kept while the view waits.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.keep.approaches import EVERYTHING, HEADRACE, PLENTY, REBATCH, RECYCLER, Kept, Taken, keeping
from headrace.bench.keep.workload import Loaded, Tables, after, chain, chain_query, peer, tpch
from headrace.bench.tpch.data import Changes, Tell
from headrace.datasets.batches import DIFF
from headrace.datasets.tpch_queries import tpch_query

Row = dict[str, Any]

_LATE = (0.09, 0.009, 0.001)
_FRACTIONS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
_DELETED = (0.0, 0.25, 0.5, 0.75, 1.0)
_DIRTY = ("supplier", "customer", "part", "orders", "lineitem")
_SMALL = 0.005  # the scale of the tables for warming up
_BATCHES = 4  # changes per table that is cleaned
_COMPARED = (HEADRACE, EVERYTHING, REBATCH)


@dataclass(frozen=True)
class Bench:
    """What all scenarios need."""

    spark: SparkSession
    folder: Path
    tables: Tables
    queries: Sequence[str]
    chain_rows: int
    tell: Tell

    def loaded(self, name: str, tables: Tables, shares: Sequence[float]) -> tuple[Loaded, list[Changes], Any]:
        """A location with the first rows, the changes, and the first rows themselves."""
        first, changes = tables.split(shares)
        return Loaded.of(self.spark, self.folder / name, tables, first, self.tell), changes, first

    def warm_up(self) -> None:
        """Have all kernels compiled, by small tables under changing budgets."""
        tables = tpch(_SMALL)
        loaded, changes, _ = self.loaded("warm", tables, [0.01] * 8)
        for query in self.queries:
            self.tell(f"warming up with {query}")
            for approach in (HEADRACE, REBATCH):
                with keeping(loaded, approach, tpch_query(query)) as kept:
                    for number, change in enumerate(changes):
                        if approach == HEADRACE:
                            kept.engine.memory_budget = (0, 50_000, 200_000, PLENTY)[number % 4]
                        kept.step({name: change[name] for name in tables.changing[number % 5 :]})

    # -- scenarios --------------------------------------------------------------------------------------------------

    def late(self) -> Iterator[Row]:
        """90% of all tables are there; 9%, 0.9% and 0.1% come late, and the next batch is expected from the last."""
        loaded, changes, first = self.loaded("late", self.tables, _LATE)
        complete = peer(self.spark, self.folder / "late" / "after", after(first, changes))
        for query in self.queries:
            sql = tpch_query(query)
            for approach in _COMPARED:
                self.tell(f"late data: {query}, {approach}")
                with keeping(loaded, approach, sql) as kept:
                    sizes = [kept.kept_bytes]
                    seconds = []
                    for change in changes:
                        seconds.append(kept.step(change))
                        sizes.append(kept.kept_bytes)
                    answer = kept.answer
                    wrong = None if answer is None else complete.difference(sql, answer)
                    yield _row("late", query, kept, seconds, max(sizes), wrong=wrong)
            spark = {"system": "spark", "seconds": complete.timed(sql)[0], "cpu_seconds": None, "state_mb": 0.0}
            yield {"scenario": "late", "case": query, **spark}

    def budgets(self) -> Iterator[Row]:
        """Changes of 0.5% of all tables, under budgets from all of the state to nothing."""
        loaded, changes, _ = self.loaded("budgets", self.tables, [0.005] * (4 * len(_FRACTIONS) + 1))
        for query in self.queries:
            sql = tpch_query(query)
            with keeping(loaded, EVERYTHING, sql) as kept:
                seconds = [kept.step(change) for change in changes[:4]][1:]
                all_bytes = kept.kept_bytes
                yield _row("budgets", query, kept, seconds, all_bytes, budget_share=1.0)
            with keeping(loaded, REBATCH, sql) as kept:
                seconds = [kept.step(change) for change in changes[:4]][1:]
                yield _row("budgets", query, kept, seconds, 0, budget_share=0.0)
            for approach in (HEADRACE, RECYCLER):
                with keeping(loaded, approach, sql) as kept:
                    waiting = list(changes)
                    kept.step(waiting.pop())
                    for fraction in _FRACTIONS:
                        self.tell(f"budgets: {query}, {approach}, {fraction:.0%} of {all_bytes / 1e6:,.1f} MB")
                        kept.engine.memory_budget = round(fraction * all_bytes)
                        kept.step(waiting.pop())  # it may still have to make what this budget wants to keep
                        seconds = [kept.step(waiting.pop()) for _ in range(3)]
                        yield _row("budgets", query, kept, seconds, kept.kept_bytes, budget_share=fraction)

    def deletes(self) -> Iterator[Row]:
        """Changes of 1%, of which some are deletions."""
        loaded, changes, first = self.loaded("deletes", self.tables, [0.01] * len(_DELETED))
        rng = np.random.default_rng(5)
        gone = {name: rng.permutation(first[name].num_rows) for name in self.tables.changing}
        for query in self.queries:
            for approach in _COMPARED:
                self.tell(f"deletes: {query}, {approach}")
                with keeping(loaded, approach, tpch_query(query)) as kept:
                    at = dict.fromkeys(gone, 0)
                    for share, change in zip(_DELETED, changes, strict=True):
                        mixed = _with_deletes(first, change, share, gone, at)
                        seconds = [kept.step(mixed)]
                        yield _row("deletes", query, kept, seconds, kept.kept_bytes, deleted_share=share)

    def cleaning(self) -> Iterator[Row]:
        """One table after the other gets the rows that were dirty; what comes next is expected from what came."""
        loaded, parts, _ = self.loaded("cleaning", self.tables, [0.2 / _BATCHES] * _BATCHES)
        sql = tpch_query("q8")
        for approach in _COMPARED:
            with keeping(loaded, approach, sql) as kept:
                for table in _DIRTY:
                    self.tell(f"cleaning {table}: {approach}")
                    seconds, sizes = [], []
                    for part in parts:
                        seconds.append(kept.step({table: part[table]}))
                        sizes.append(kept.kept_bytes)
                    # The first change of a table finds state that was kept for another one.
                    row = _row("cleaning", table, kept, seconds[1:], sizes[-1])
                    yield row | {"first_change_seconds": seconds[0].seconds}

    def predictions(self) -> Iterator[Row]:
        """A change of 1% of all tables, where something else was expected, under half of all memory."""
        loaded, changes, _ = self.loaded("predictions", self.tables, [0.01])
        rows = {name: changes[0][name].num_rows for name in self.tables.changing}
        largest = sorted(rows, key=lambda name: -rows[name])
        expected = {
            "right": rows,
            "30 times too much": {name: 30 * count for name, count in rows.items()},
            "30 times too little": {name: max(1, count // 30) for name, count in rows.items()},
            **{f"only {n} of {len(rows)} tables": {name: rows[name] for name in largest[:n]} for n in (1, 3)},
        }
        sql = tpch_query("q8")
        with keeping(loaded, EVERYTHING, sql) as kept:
            all_bytes = kept.kept_bytes
        for case, said in expected.items():
            self.tell(f"predictions: {case}")
            with keeping(loaded, HEADRACE, sql) as kept:
                kept.engine.expect(said)
                kept.engine.memory_budget = all_bytes // 2
                kept.engine.expect(said)
                waited = kept.kept_bytes
                yield _row("predictions", case, kept, [kept.step(changes[0])], waited)

    def many_ways(self) -> Iterator[Row]:
        """A join of eight tables in a chain, of which 1% comes late; a peer of the join order benchmark."""
        tables = chain(self.chain_rows)
        loaded, changes, _ = self.loaded("chain", tables, [0.01] * 4)
        for approach in _COMPARED:
            self.tell(f"eight tables: {approach}")
            with keeping(loaded, approach, chain_query()) as kept:
                seconds = [kept.step(change) for change in changes][1:]
                yield _row("many ways", "8 tables", kept, seconds, kept.kept_bytes)


SCENARIOS = ("late", "budgets", "deletes", "cleaning", "predictions", "many_ways")


def _row(
    scenario: str,
    case: str,
    kept: Kept,
    taken: Sequence[Taken],
    size: int,
    wrong: str | None = None,
    **more: Any,
) -> Row:
    # Late changes differ in size by design; those of the other scenarios are of one size.
    average = statistics.mean if scenario == "late" else statistics.median
    return {
        "scenario": scenario,
        "case": case,
        "system": kept.approach,
        "seconds": average([one.seconds for one in taken]),
        "cpu_seconds": average([one.cpu for one in taken]),
        "total_seconds": kept.first_seconds + sum(one.seconds for one in taken),
        "state_mb": size / 1e6,
        **more,
        **({"wrong": wrong} if wrong else {}),
    }


def _with_deletes(
    first: dict[str, pa.Table], change: Changes, share: float, gone: dict[str, Any], at: dict[str, int]
) -> Changes:
    """A change of which a share deletes rows that are there, and the rest inserts."""
    out = {}
    for name, rows in change.items():
        deleted = round(share * rows.num_rows)
        positions = gone[name][at[name] : at[name] + deleted]
        at[name] += deleted
        parts = [rows.slice(0, rows.num_rows - deleted), first[name].take(np.sort(positions)).cast(rows.schema)]
        diff = np.repeat(np.array([1, -1], np.int64), [part.num_rows for part in parts])
        out[name] = pa.concat_tables(parts).append_column(DIFF, pa.array(diff))
    return out
