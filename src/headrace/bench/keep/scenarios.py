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

from headrace.bench.keep.approaches import (
    EVERYTHING,
    HEADRACE,
    PLENTY,
    REBATCH,
    RECURSIVE,
    RECYCLER,
    Kept,
    Taken,
    keeping,
    played,
    side_by_side,
)
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
_ROOM = 1.2  # state grows by the changes; this much of the first state holds all of it
# Without orders, q5 joins lineitem, supplier and customer by nation alone: more than 11 GB at scale 0.05.
_ENDLESS = ("q5",)
_COMPARED = (HEADRACE, EVERYTHING, RECURSIVE, REBATCH)


@dataclass(frozen=True)
class Bench:
    """What all scenarios need."""

    spark: SparkSession
    folder: Path
    tables: Tables
    queries: Sequence[str]
    chain_rows: int
    repeats: int
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
            with side_by_side(loaded, tpch_query(query), _all(_COMPARED, query)) as kept:
                for number, change in enumerate(changes):
                    kept[HEADRACE].engine.memory_budget = (0, 50_000, 200_000, PLENTY)[number % 4]
                    played(kept, [{name: change[name] for name in tables.changing[number % 5 :]}])

    # -- scenarios --------------------------------------------------------------------------------------------------

    def late(self) -> Iterator[Row]:
        """90% of all tables are there; 9%, 0.9% and 0.1% come late, and the next batch is expected from the last."""
        loaded, changes, first = self.loaded("late", self.tables, _LATE)
        complete = peer(self.spark, self.folder / "late" / "after", after(first, changes))
        for query in self.queries:
            self.tell(f"late data: {query}")
            sql = tpch_query(query)
            with side_by_side(loaded, sql, _all(_COMPARED, query)) as kept:
                sizes = {name: [one.kept_bytes] for name, one in kept.items()}
                taken: dict[str, list[Taken]] = {name: [] for name in kept}
                for change in changes:
                    for name, found in played(kept, [change]).items():
                        taken[name] += found
                        sizes[name].append(kept[name].kept_bytes)
                for name, one in kept.items():
                    answer = one.answer
                    wrong = None if answer is None else complete.difference(sql, answer)
                    yield _row("late", query, one, taken[name], max(sizes[name]), wrong=wrong)
            spark = {"system": "spark", "seconds": complete.timed(sql)[0], "cpu_seconds": None, "state_mb": 0.0}
            yield {"scenario": "late", "case": query, **spark}

    def budgets(self) -> Iterator[Row]:
        """Changes of 0.5% of all tables, under budgets from nothing to all of the state."""
        loaded, changes, _ = self.loaded("budgets", self.tables, [0.005] * (1 + self.repeats))
        for query in self.queries:
            sql = tpch_query(query)
            with keeping(loaded, EVERYTHING, sql) as whole:
                all_bytes = round(_ROOM * whole.kept_bytes)
            cases = _all((EVERYTHING, RECURSIVE, REBATCH), query)
            shares = {EVERYTHING: 1.0, RECURSIVE: 1.0, REBATCH: 0.0}
            for share in _FRACTIONS:
                for approach in (HEADRACE, RECYCLER):
                    cases[f"{approach} {share}"] = approach, round(share * all_bytes)
                    shares[f"{approach} {share}"] = share
            self.tell(f"budgets: {query}, up to {all_bytes / 1e6:,.1f} MB")
            with side_by_side(loaded, sql, cases) as kept:
                for name, taken in played(kept, changes).items():
                    # The first change may still have to make what its budget wants to keep.
                    yield _row(
                        "budgets", query, kept[name], taken[1:], kept[name].kept_bytes, budget_share=shares[name]
                    )

    def deletes(self) -> Iterator[Row]:
        """Changes of 1%, of which some are deletions."""
        loaded, changes, first = self.loaded("deletes", self.tables, [0.01] * len(_DELETED))
        for query in self.queries:
            rng = np.random.default_rng(5)
            gone = {name: rng.permutation(first[name].num_rows) for name in self.tables.changing}
            at = dict.fromkeys(gone, 0)
            self.tell(f"deletes: {query}")
            with side_by_side(loaded, tpch_query(query), _all(_COMPARED, query)) as kept:
                for share, change in zip(_DELETED, changes, strict=True):
                    mixed = _with_deletes(first, change, share, gone, at)
                    for name, taken in played(kept, [mixed]).items():
                        yield _row("deletes", query, kept[name], taken, kept[name].kept_bytes, deleted_share=share)

    def cleaning(self) -> Iterator[Row]:
        """One table after the other gets the rows that were dirty; what comes next is expected from what came."""
        loaded, parts, _ = self.loaded("cleaning", self.tables, [0.2 / _BATCHES] * _BATCHES)
        with side_by_side(loaded, tpch_query("q8"), _all(_COMPARED)) as kept:
            for table in _DIRTY:
                self.tell(f"cleaning {table}")
                for name, taken in played(kept, [{table: part[table]} for part in parts]).items():
                    # The first change of a table finds state that was kept for another one.
                    row = _row("cleaning", table, kept[name], taken[1:], kept[name].kept_bytes)
                    yield row | {"first_change_seconds": taken[0].seconds}

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
        self.tell("a join of eight tables")
        with side_by_side(loaded, chain_query(), _all(_COMPARED)) as kept:
            for name, taken in played(kept, changes).items():
                row = _row("many ways", "8 tables", kept[name], taken[1:], kept[name].kept_bytes)
                spent = kept[name].choosing if name == HEADRACE else []
                yield row | ({"choosing_seconds": max(spent)} if spent else {})


def _all(approaches: Sequence[str], query: str = "") -> dict[str, tuple[str, int]]:
    """Some approaches with all the memory that they want; not those that never end for a query."""
    never = (RECURSIVE,) if query in _ENDLESS else ()
    return {name: (name, PLENTY) for name in approaches if name not in never}


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
