"""What the benchmark measures: the experiments of the CrocodileDB thesis on state under a budget (Figures 5.3 to 5.9).

Each scenario gives rows of results, one per approach and case, with the seconds of a change, the total seconds from the
first answer to the last change, and the bytes that are kept while the view waits.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
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
from headrace.bench.keep.workload import Loaded, Tables, Truth, after, chain, chain_query, tpch
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

    def truth(self, name: str, tables: Tables, first: dict[str, pa.Table], changes: Sequence[Changes]) -> Truth:
        """Spark's answers after the changes of a scenario."""
        return Truth.of(self.spark, self.folder / name / "after", tables, after(first, changes))

    def late(self) -> Iterator[Row]:
        """90% of all tables are there; 9%, 0.9% and 0.1% come late, and the next batch is expected from the last."""
        loaded, changes, first = self.loaded("late", self.tables, _LATE)
        truth = self.truth("late", self.tables, first, changes)
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
                rows = [_row("late", query, one, taken[name], max(sizes[name])) for name, one in kept.items()]
                yield from _checked(rows, kept, truth)
            spark = {"system": "spark", "seconds": truth.peer.timed(sql)[0], "cpu_seconds": None, "state_mb": 0.0}
            yield {"scenario": "late", "case": query, **spark}

    def budgets(self) -> Iterator[Row]:
        """Changes of 0.5% of all tables, under budgets from nothing to all of the state."""
        loaded, changes, first = self.loaded("budgets", self.tables, [0.005] * (1 + self.repeats))
        truth = self.truth("budgets", self.tables, first, changes)
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
                rows = [
                    # The first change may still have to make what its budget wants to keep.
                    _row("budgets", query, kept[name], taken[1:], kept[name].kept_bytes, budget_share=shares[name])
                    for name, taken in played(kept, changes).items()
                ]
                yield from _checked(rows, kept, truth)

    def deletes(self) -> Iterator[Row]:
        """Changes of 1%, of which some are deletions."""
        loaded, changes, first = self.loaded("deletes", self.tables, [0.01] * len(_DELETED))
        rng = np.random.default_rng(5)
        gone = {name: rng.permutation(first[name].num_rows) for name in self.tables.changing}
        at = dict.fromkeys(gone, 0)
        mixed = [_with_deletes(first, change, share, gone, at) for share, change in zip(_DELETED, changes, strict=True)]
        truth = self.truth("deletes", self.tables, first, mixed)
        for query in self.queries:
            self.tell(f"deletes: {query}")
            with side_by_side(loaded, tpch_query(query), _all(_COMPARED, query)) as kept:
                for share, change in zip(_DELETED, mixed, strict=True):
                    rows = [
                        _row("deletes", query, kept[name], taken, kept[name].kept_bytes, deleted_share=share)
                        for name, taken in played(kept, [change]).items()
                    ]
                    yield from _checked(rows, kept, truth) if change is mixed[-1] else rows

    def cleaning(self) -> Iterator[Row]:
        """One table after the other gets the rows that were dirty; what comes next is expected from what came."""
        loaded, parts, first = self.loaded("cleaning", self.tables, [0.2 / _BATCHES] * _BATCHES)
        changes = [Changes({table: part[table]}) for table in _DIRTY for part in parts]
        truth = self.truth("cleaning", self.tables, first, changes)
        with side_by_side(loaded, tpch_query("q8"), _all(_COMPARED)) as kept:
            for table in _DIRTY:
                self.tell(f"cleaning {table}")
                rows = []
                for name, taken in played(kept, [{table: part[table]} for part in parts]).items():
                    # The first change of a table finds state that was kept for another one.
                    row = _row("cleaning", table, kept[name], taken[1:], kept[name].kept_bytes)
                    rows.append(row | {"first_change_seconds": taken[0].seconds})
                yield from _checked(rows, kept, truth) if table == _DIRTY[-1] else rows

    def predictions(self) -> Iterator[Row]:
        """A change of 1% of all tables, or of one, where something else was expected, under half of all memory."""
        loaded, (change,), first = self.loaded("predictions", self.tables, [0.01])
        rows = {name: change[name].num_rows for name in self.tables.changing}
        largest = sorted(rows, key=lambda name: -rows[name])
        expected = {
            "right": rows,
            "30 times too much": {name: 30 * count for name, count in rows.items()},
            "30 times too little": {name: max(1, count // 30) for name, count in rows.items()},
            **{f"only {n} of {len(rows)} tables": {name: rows[name] for name in largest[:n]} for n in (1, 3)},
        }
        yield from self._mispredicted(loaded, first, change, "", expected)
        alone = largest[0]
        only = {alone: change[alone]}
        over = {"right": {alone: rows[alone]}, f"all {len(rows)} tables": rows}
        yield from self._mispredicted(loaded, first, only, f"{alone} alone: ", over)

    def _mispredicted(
        self,
        loaded: Loaded,
        first: dict[str, pa.Table],
        change: Changes,
        about: str,
        expected: dict[str, dict[str, int]],
    ) -> Iterator[Row]:
        """One change under several expectations, beside what it costs to recompute, which nobody has to expect."""
        sql, truth = tpch_query("q8"), self.truth(f"predictions {'-'.join(change)}", self.tables, first, [change])
        with side_by_side(loaded, sql, _all((EVERYTHING, REBATCH))) as kept:
            all_bytes = kept[EVERYTHING].kept_bytes
            # Both take the change, so that what it costs without any choice is known too.
            taken = played(kept, [change])
            found = [_row("predictions", f"{about}right", kept[n], taken[n], kept[n].kept_bytes) for n in taken]
            yield from _checked(found, kept, truth)
        for case, said in expected.items():
            self.tell(f"predictions: {about}{case}")
            with keeping(loaded, HEADRACE, sql) as one:
                one.engine.expect(said)
                one.engine.memory_budget = all_bytes // 2
                one.engine.expect(said)
                waited = one.kept_bytes
                row = _row("predictions", f"{about}{case}", one, [one.step(change)], waited)
                yield from _checked([row], {HEADRACE: one}, truth)

    def many_ways(self) -> Iterator[Row]:
        """A join of eight tables in a chain, of which 1% comes late; a peer of the join order benchmark."""
        tables = chain(self.chain_rows)
        loaded, changes, first = self.loaded("chain", tables, [0.01] * 4)
        truth = self.truth("chain", tables, first, changes)
        self.tell("a join of eight tables")
        with side_by_side(loaded, chain_query(), _all(_COMPARED)) as kept:
            rows = []
            for name, taken in played(kept, changes).items():
                row = _row("many ways", "8 tables", kept[name], taken[1:], kept[name].kept_bytes)
                spent = kept[name].choosing if name == HEADRACE else []
                rows.append(row | ({"choosing_seconds": max(spent)} if spent else {}))
            yield from _checked(rows, kept, truth)


def _checked(rows: Sequence[Row], kept: Mapping[str, Kept], truth: Truth) -> Iterator[Row]:
    """Rows of results, one per approach in their order, each with what is wrong with its answer, if anything is."""
    for row, one in zip(rows, kept.values(), strict=True):
        wrong = truth.wrong(one.sql, one.answer)
        yield row if wrong is None else row | {"wrong": wrong}


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
