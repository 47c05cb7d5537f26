"""An aggregate view under random streams: after every batch it equals the answer recomputed from its rows."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.group_words import group_words

from headrace.operators.aggregate import changed_rows, empty_total, maintain, read, read_changes
from headrace.operators.delta import Evaluated, deltas, filtered, not_summable, split
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, TableRows, ViewPlan
from headrace.relation import runfile
from headrace.relation.arrangement import alive
from headrace.relation.run import Run, merge
from headrace.relation.types import SqlType

WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
KEYS = (column("s", SqlType("string"), True), column("k", SqlType("int"), False))
ARGUMENTS = (
    column("i", SqlType("bigint"), True),
    column("n", SqlType("int"), False),
    column("d", SqlType("decimal", 20, 3), True),
    column("w", SqlType("decimal", 38, 2), True),
    column("x", SqlType("double"), True),
    column("t", SqlType("string"), True),
    column("m", SqlType("double"), True),  # NaN and infinities: not summed
)
SUMS = {"i": ("bigint", "double"), "n": ("bigint", "double"), "d": ("decimal(30,3)", "decimal(24,7)")}
SUMS |= {"w": ("decimal(38,2)", None), "x": ("double", "double")}
NAMES = [str(argument) for argument in ARGUMENTS]
COMBINATIONS = ("in", "dwt", "tm")
AGGREGATES = [("count", None, "bigint"), *(("count", NAMES.index(name), "bigint") for name in "int")]
AGGREGATES += [("sum", NAMES.index(name), total) for name, (total, _) in SUMS.items()]
AGGREGATES += [("avg", NAMES.index(name), average) for name, (_, average) in SUMS.items() if average]
AGGREGATES += [
    (f, NAMES.index(name), str(ARGUMENTS[NAMES.index(name)].type)) for name in "idwxtm" for f in ("min", "max")
]
# n has an ordered arrangement for its COUNT(DISTINCT) alone; the others share it with MIN and MAX.
AGGREGATES += [("count_distinct", NAMES.index(name), "bigint") for name in "inwtm"]
AGGREGATES += [("sum_distinct", NAMES.index(name), total) for name, (total, _) in SUMS.items()]
AGGREGATES += [("avg_distinct", NAMES.index(name), average) for name, (_, average) in SUMS.items() if average]
COMBINED = [
    ("count_distinct", NAMES.index(first), "bigint", *map(NAMES.index, others)) for first, *others in COMBINATIONS
]
AGGREGATES += COMBINED

ROW = st.tuples(
    st.sampled_from([None, "", "a", "a\0"]),
    st.integers(0, 1),
    st.one_of(st.none(), st.integers(-9, 9), st.just(2**55)),
    st.integers(-3, 3),
    st.one_of(st.none(), st.sampled_from([Decimal("0.001"), Decimal("-7.125"), Decimal("99999999999999999.999")])),
    st.one_of(st.none(), st.sampled_from([Decimal("0.01"), Decimal(-(2**64)), Decimal(10**34), Decimal(-(10**34))])),
    st.one_of(st.none(), st.integers(-8, 8).map(lambda quarter: quarter / 4)),
    st.one_of(st.none(), st.sampled_from(["", "b", "ab", "a long one indeed", "\U0001f600"])),
    st.one_of(st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 2.5])),
)


def layout_of(shape: Shape = Shape.GROUPS, aggregates=AGGREGATES, keys=KEYS) -> ViewLayout:
    listed = tuple(Aggregate(f, a, SqlType.parse(kind), f"{f}({a})", tuple(more)) for f, a, kind, *more in aggregates)
    return ViewLayout(ViewPlan(TableRows("t"), shape, keys, ARGUMENTS, listed, None, ()), seed=3)


def evaluated(layout: ViewLayout, entries) -> Evaluated:
    rows, diff = [row for row, _ in entries], np.array([n for _, n in entries], np.int64)
    columns = [
        pa.array([row[i] for row in rows], expression.type.arrow) for i, expression in enumerate((*KEYS, *ARGUMENTS))
    ]
    keys = columns[: len(layout.plan.keys)]
    return Evaluated(keys, columns[len(KEYS) :], diff, np.arange(len(rows)))


class Kept:
    """One bucket of a view: lists of runs, now and then merged, now and then read back from a file."""

    def __init__(self, layout: ViewLayout, choose: random.Random) -> None:
        self.layout, self.choose = layout, choose
        self.state: dict[str, list] = {name: [] for name in layout.arrangements}
        self.live = dict.fromkeys(layout.arrangements, 0)

    def step(self, pieces):
        parts = [deltas(self.layout, rows, group_words(self.layout, rows)) for rows in pieces]
        done = maintain(self.layout, self.state, {name: [part[name] for part in parts] for name in self.state})
        for name, run in done.runs.items():
            self.live[name] += done.live.get(name, 0)
            if run.rows:
                self.state[name].append(self.stored(run))
            self.compact(name)
        return done

    def stored(self, run: Run):
        if self.choose.random() < 0.5:
            return run
        return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")

    def compact(self, name: str) -> None:
        runs = self.state[name]
        if len(runs) > 1 and self.choose.random() < 0.4:
            start = self.choose.randrange(len(runs) - 1)
            stop = self.choose.randint(start + 2, len(runs))
            merged = merge(self.layout.arrangements[name], runs[start:stop])
            runs[start:stop] = [self.stored(merged)] if merged.rows else []


def recomputed(layout: ViewLayout, rows: Counter) -> dict[tuple, tuple]:
    """The answer by definition: group -> aggregates."""
    groups = defaultdict(list)
    for row, n in rows.items():
        groups[row[: len(layout.plan.keys)]] += [row[len(KEYS) :]] * n
    return {
        key: tuple(computed(a, members) for a in layout.plan.aggregates) for key, members in groups.items() if members
    }


def computed(aggregate: Aggregate, members: list[tuple]) -> object:
    if aggregate.argument is None:
        return len(members)
    if aggregate.others:
        combined = {tuple(shown(row[i]) for i in (aggregate.argument, *aggregate.others)) for row in members}
        return sum(None not in combination for combination in combined)
    values = [row[aggregate.argument] for row in members if row[aggregate.argument] is not None]
    if aggregate.function == "count":
        return len(values)
    if aggregate.function == "count_distinct":
        return len({shown(value) for value in values})
    if aggregate.function in ("sum_distinct", "avg_distinct"):
        plain = replace(aggregate, function=aggregate.function.removesuffix("_distinct"))
        return computed(plain, [(*row[: aggregate.argument], value) for row in members[:1] for value in set(values)])
    if not values:
        return None
    if aggregate.function in ("min", "max"):
        return shown((min if aggregate.function == "min" else max)(values, key=rank))
    total = WIDE.create_decimal(0)
    for value in values:
        total = WIDE.add(total, WIDE.create_decimal(value))
    if aggregate.type.is_decimal:
        total = total if aggregate.function == "sum" else WIDE.divide(total, len(values))
        return WIDE.quantize(total, Decimal(1).scaleb(-aggregate.type.scale))
    if aggregate.function == "sum":
        return float(total) if aggregate.type.is_floating else int(total)
    return float(total) / len(values)


def rank(value: object) -> object:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def shown(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def table_rows(layout: ViewLayout, table: pa.Table) -> dict[tuple, tuple]:
    keys = [f"k{i}" for i in range(len(layout.plan.keys))]
    out = {}
    for row in table.to_pylist():
        key = tuple(row[name] for name in keys)
        assert key not in out, "a group is shown once"
        out[key] = tuple(shown(row[f"a{i}"]) for i in range(len(layout.plan.aggregates)))
    return out


def a_batch(data, rows: Counter) -> list[tuple[tuple, int]]:
    """Insertions, deletions of what is there, and a few rows that come and go within the batch."""
    entries = [(row, data.draw(st.sampled_from([1, 1, 2]))) for row in data.draw(st.lists(ROW, max_size=8))]
    there = sorted((row for row, n in rows.items() if n), key=repr)
    if there:
        gone = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=8))
        entries += [(row, -rows[row] if data.draw(st.booleans()) else -1) for row in gone]
    for row in data.draw(st.lists(ROW, max_size=2)):
        entries += [(row, 1), (row, -1)]
    return data.draw(st.permutations(entries))


def cut(choose: random.Random, entries: list) -> list[list]:
    edges = sorted(choose.choices(range(len(entries) + 1), k=choose.randint(0, 3)))
    return [entries[a:b] for a, b in zip([0, *edges], [*edges, len(entries)], strict=True)]


@pytest.mark.parametrize("shape", [Shape.GROUPS, Shape.TOTAL])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_after_every_batch_the_view_is_what_recomputing_gives(shape, data):
    layout = layout_of(shape, keys=KEYS if shape is Shape.GROUPS else ())
    choose = random.Random(data.draw(st.integers(0, 2**32)))
    view, rows, before = Kept(layout, choose), Counter(), {}
    collected: Counter = Counter()
    for _ in range(data.draw(st.integers(1, 5))):
        entries = a_batch(data, rows)
        done = view.step([evaluated(layout, piece) for piece in cut(choose, entries)])
        for row, n in entries:
            rows[row] += n
        after = recomputed(layout, rows)
        assert table_rows(layout, read(layout, view.state)) == after
        old, new = sides_of(layout, done.changes)
        assert old == {key: value for key, value in before.items() if after.get(key) != value}
        assert new == {key: value for key, value in after.items() if before.get(key) != value}
        collected.subtract(old.items())
        collected.update(new.items())
        check_changed_rows(layout, done.changes, before, after)
        check_summary(shape, done.summary, before, after)
        check_live(view, rows)
        before = after
    assert +collected == Counter(before.items())
    assert not -collected


def check_changed_rows(layout: ViewLayout, changes: Run | None, before: dict, after: dict) -> None:
    """The rows before, plus the changed ones, are the rows after; a total has its one row all along."""
    if layout.plan.shape is Shape.TOTAL:
        nothing = table_rows(layout, empty_total(layout))
        before, after = before or nothing, after or nothing
    sums = Counter(dict.fromkeys(before.items(), 1))
    if changes is not None:
        rows, diff = changed_rows(layout, changes)
        assert "__rows" not in rows.column_names
        assert diff.dtype == np.int64
        for row, n in zip(rows.to_pylist(), diff.tolist(), strict=True):
            assert n in (-1, 1)
            key = tuple(row[f"k{i}"] for i in range(len(layout.plan.keys)))
            sums[key, tuple(shown(row[f"a{i}"]) for i in range(len(layout.plan.aggregates)))] += n
    assert {entry: n for entry, n in sums.items() if n} == dict.fromkeys(after.items(), 1)


def sides_of(layout: ViewLayout, changes: Run | None) -> tuple[dict, dict]:
    if changes is None:
        return {}, {}
    stored = runfile.decode(np.frombuffer(bytes(runfile.encode(changes)), np.uint8), "in memory")
    old, new = read_changes(layout, Run(stored.words, stored.payload, stored.values))
    return table_rows(layout, old), table_rows(layout, new)


def check_summary(shape: Shape, summary, before: dict, after: dict) -> None:
    updated = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    if shape is Shape.TOTAL:  # always one row, so it is only ever updated
        assert (summary.inserted, summary.deleted, summary.updated) == (0, 0, int(before != after))
    else:
        counts = len(after.keys() - before.keys()), len(before.keys() - after.keys()), len(updated)
        assert (summary.inserted, summary.deleted, summary.updated) == counts


def check_live(view: Kept, rows: Counter) -> None:
    there = [row for row, n in rows.items() if n]
    width = len(view.layout.plan.keys)
    assert view.live[GROUPS] == len({row[:width] for row in there})
    for name, arranged in view.layout.values.items():
        found = [(row[:width], *(shown(row[len(KEYS) + argument]) for argument in arranged.arguments)) for row in there]
        assert view.live[name] == len({entry for entry in found if None not in entry[1:]})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ROW, st.sampled_from([1, 2])), min_size=1, max_size=20), st.integers(0, 2**32))
def test_one_batch_is_any_split_of_it_into_batches_or_pieces(entries, seed):
    layout, choose = layout_of(), random.Random(seed)
    whole, pieces, steps = (Kept(layout, choose) for _ in range(3))
    whole.step([evaluated(layout, entries)])
    shuffled = choose.sample(entries, len(entries))
    pieces.step([evaluated(layout, part) for part in cut(choose, shuffled)])
    for entry in shuffled:
        steps.step([evaluated(layout, [entry])])
    answers = [table_rows(layout, read(layout, view.state)) for view in (whole, pieces, steps)]
    assert answers[0] == answers[1] == answers[2] == recomputed(layout, Counter(dict_of(entries)))


def dict_of(entries) -> dict:
    total: dict = defaultdict(int)
    for row, n in entries:
        total[row] += n
    return total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ROW, st.sampled_from([1, 2])), max_size=20), st.integers(1, 5))
def test_buckets_split_a_run_by_group_and_lose_nothing(entries, buckets):
    layout = layout_of()
    rows = evaluated(layout, entries)
    parts = deltas(layout, rows, group_words(layout, rows))
    where: dict[str, dict[tuple, int]] = {}
    for name, run in parts.items():
        pieces = split(run, buckets)
        assert sum(piece.rows for piece in pieces.values()) == run.rows
        if pieces:
            assert (merge(layout.arrangements[name], list(pieces.values()), keep_zeros=True).words == run.words).all()
        width = layout.keys.width
        where[name] = {tuple(w[:width]): b for b, piece in pieces.items() for w in piece.words.T.tolist()}
    for name in where:
        assert where[name].items() <= where[GROUPS].items(), "a group lies in one bucket with all its values"


BASE = ("a", 1, 5, 2, Decimal("1.000"), Decimal("2.00"), 0.5, "b", 1.0)


def test_a_group_that_cancels_within_a_batch_is_no_change():
    layout = layout_of()
    view = Kept(layout, random.Random(0))
    done = view.step([evaluated(layout, [(BASE, 1), (BASE, -1)])])
    assert done.changes is None
    assert not done.summary
    assert done.runs[GROUPS].rows == 0
    assert read(layout, view.state).num_rows == 0


def test_a_change_that_no_column_shows_is_no_change():
    layout = layout_of(aggregates=[("max", 0, "bigint"), ("sum", 1, "bigint")])
    view = Kept(layout, random.Random(0))
    view.step([evaluated(layout, [(BASE, 1)])])
    done = view.step([evaluated(layout, [((*BASE[:2], 4, 0, *BASE[4:]), 1)])])  # a smaller i, and n = 0
    assert done.changes is None
    assert not done.summary
    assert table_rows(layout, read(layout, view.state)) == {("a", 1): (5, 2)}


def test_a_group_that_vanished_and_came_back_starts_afresh():
    layout = layout_of()
    view = Kept(layout, random.Random(0))
    for n in (1, -1, 2):
        view.step([evaluated(layout, [(BASE, n)])])
    assert table_rows(layout, read(layout, view.state)) == recomputed(layout, Counter({BASE: 2}))


def test_an_update_that_keeps_the_sum_but_moves_the_minimum_is_a_change():
    layout = layout_of(aggregates=[("sum", 0, "bigint"), ("min", 0, "bigint")])
    view = Kept(layout, random.Random(0))
    with_i = lambda i: (*BASE[:2], i, *BASE[3:])  # noqa: E731
    view.step([evaluated(layout, [(with_i(5), 1), (with_i(5), 1)])])
    done = view.step([evaluated(layout, [(with_i(5), -2), (with_i(4), 1), (with_i(6), 1)])])
    assert sides_of(layout, done.changes) == ({("a", 1): (10, 5)}, {("a", 1): (10, 4)})


def test_no_rows_give_no_groups_and_no_changes():
    for shape, keys in ((Shape.GROUPS, KEYS), (Shape.TOTAL, ())):
        layout = layout_of(shape, keys=keys)
        view = Kept(layout, random.Random(0))
        done = view.step([evaluated(layout, [])])
        assert done.changes is None
        assert not done.summary
        assert read(layout, view.state).num_rows == 0


def test_the_total_of_nothing_counts_zero_and_is_null():
    layout = layout_of(Shape.TOTAL, keys=())
    (row,) = empty_total(layout).to_pylist()
    for i, (function, *_) in enumerate(AGGREGATES):
        assert row[f"a{i}"] == (0 if function.startswith("count") else None)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_view_without_aggregates_is_a_bag(data):
    layout = layout_of(Shape.ROWS, aggregates=[])
    choose = random.Random(data.draw(st.integers(0, 2**32)))
    view, rows = Kept(layout, choose), Counter()
    for _ in range(4):
        entries = a_batch(data, rows)
        before = projected(rows)
        done = view.step([evaluated(layout, piece) for piece in cut(choose, entries)])
        for row, n in entries:
            rows[row] += n
        after = projected(rows)
        table = read(layout, view.state)
        assert Counter({(r["k0"], r["k1"]): r["__rows"] for r in table.to_pylist()}) == after
        assert done.summary.inserted == sum((after - before).values())
        assert done.summary.deleted == sum((before - after).values())
        if done.changes is not None:
            old, new = read_changes(layout, done.changes)
            counts = [Counter({(r["k0"], r["k1"]): r["__rows"] for r in side.to_pylist()}) for side in (old, new)]
            assert counts[1] - counts[0] == after - before
            assert counts[0] - counts[1] == before - after
            changed, diff = changed_rows(layout, done.changes)
            assert changed.column_names == ["k0", "k1"]
            copies = zip(changed.to_pylist(), diff.tolist(), strict=True)
            assert {(r["k0"], r["k1"]): n for r, n in copies} == difference(before, after)
        else:
            assert before == after


def difference(before: Counter, after: Counter) -> dict[tuple, int]:
    return {key: after[key] - before[key] for key in before | after if after[key] != before[key]}


def test_changed_rows_of_a_total_lead_from_the_row_of_no_rows_and_back_to_it():
    layout = layout_of(Shape.TOTAL, aggregates=[("count", 0, "bigint"), ("sum", 0, "bigint")], keys=())
    view = Kept(layout, random.Random(0))
    for n, expected in ((2, [(0, None, -1), (2, 10, 1)]), (-2, [(2, 10, -1), (0, None, 1)])):
        rows, diff = changed_rows(layout, view.step([evaluated(layout, [(BASE, n)])]).changes)
        assert [(row["a0"], row["a1"], d) for row, d in zip(rows.to_pylist(), diff.tolist(), strict=True)] == expected


def projected(rows: Counter) -> Counter:
    out: Counter = Counter()
    for row, n in rows.items():
        out[row[:2]] += n
    return +out


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_rows_that_cannot_be_summed_are_found(wrong):
    layout = layout_of(aggregates=[("sum", 4, "double"), ("min", 6, "double")])
    bad = (*BASE[:6], wrong, *BASE[7:])
    missing = (*BASE[:6], None, *BASE[7:])
    found = not_summable(layout, evaluated(layout, [(BASE, 1), (bad, 1), (missing, 1)]))
    assert found == {1: "NaN or infinity (or more than 1e288) in x, which the view sums"}
    assert not_summable(layout, evaluated(layout, [((*BASE[:8], wrong), 1)])) == {}, "MIN takes any double"


def test_a_condition_that_is_null_is_not_true():
    rows = evaluated(layout_of(), [(BASE, 1), (BASE, 2), (BASE, 3)])
    assert filtered(pa.array([True, None, False]), rows).diff.tolist() == [1]
    assert filtered(None, rows) is rows


def test_values_under_nulls_do_not_leak_into_sums():
    layout = layout_of(aggregates=[("sum", 0, "bigint"), ("sum", 2, "decimal(30,3)"), ("sum", 4, "double")])
    rows = evaluated(layout, [(BASE, 1), (BASE, 1)])
    garbage = [pa.Array.from_buffers(a.type, 2, [pa.py_buffer(b"\x01"), *a.buffers()[1:]]) for a in rows.arguments]
    nan_under_null = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0.5, math.nan]))]
    )
    garbage[4] = nan_under_null
    view = Kept(layout, random.Random(0))
    view.step([Evaluated(rows.keys, garbage, rows.diff, rows.origin)])
    assert table_rows(layout, read(layout, view.state)) == {("a", 1): (5, Decimal("1.000"), 0.5)}


def test_the_row_count_decides_whether_a_group_exists():
    layout = layout_of(aggregates=[("sum", 0, "bigint")])
    view = Kept(layout, random.Random(0))
    view.step([evaluated(layout, [((*BASE[:2], None, *BASE[3:]), 1)])])
    assert table_rows(layout, read(layout, view.state)) == {("a", 1): (None,)}
    assert alive(view.state[GROUPS][0].payload).tolist() == [True]


def test_floats_are_summed_without_a_warning():
    # A FLOAT compared with the largest summable DOUBLE once overflowed: a view over FLOAT could not be maintained.
    layout = ViewLayout(
        ViewPlan(
            TableRows("t"),
            Shape.TOTAL,
            (),
            (column("x", SqlType("float")),),
            (Aggregate("sum", 0, SqlType("double"), "SUM(x)"),),
            None,
            (),
        ),
        1,
    )
    rows = Evaluated([], [pa.array([0.5, None], pa.float32())], np.array([1, 1]), np.arange(2))
    assert not_summable(layout, rows) == {}
