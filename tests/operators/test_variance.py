"""Variances under change against exact arithmetic: any mean, any history, and never a negative one."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.group_words import group_words

from headrace.errors import ArithmeticOverflowError
from headrace.operators.aggregate import empty_total, maintain, read, read_changes
from headrace.operators.delta import deltas, not_summable
from headrace.operators.kernel import Evaluated, Reduced
from headrace.operators.layout import ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, TableRows, ViewPlan
from headrace.relation.run import Run
from headrace.relation.types import SqlType

DOUBLE = SqlType("double")
FUNCTIONS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


def layout_of(*functions: str, nullable: bool = True, shape: Shape = Shape.TOTAL) -> ViewLayout:
    aggregates = tuple(Aggregate(f, 0, SqlType("bigint") if f == "count" else DOUBLE, f"{f}(x)") for f in functions)
    return ViewLayout(
        ViewPlan(TableRows("t"), shape, (), (column("x", DOUBLE, nullable),), aggregates, None, ()), seed=2
    )


class Kept:
    """A total, with a run more for every step."""

    def __init__(self, layout: ViewLayout) -> None:
        self.layout = layout
        self.state: dict[str, list[Run]] = {name: [] for name in layout.arrangements}

    def step(self, values: list[float | None], diff: list[int]) -> Reduced:
        rows = Evaluated([], [pa.array(values, pa.float64())], np.array(diff, np.int64), np.arange(len(values)))
        arrived = deltas(self.layout, rows, group_words(self.layout, rows))
        done = maintain(self.layout, self.state, {name: [run] for name, run in arrived.items()})
        for name, run in done.runs.items():
            if run.rows:
                self.state[name].append(run)
        return done

    def shown(self) -> list[float | None]:
        table = read(self.layout, self.state)
        table = table if table.num_rows else empty_total(self.layout)
        (row,) = table.to_pylist()
        return [row[f"a{i}"] for i in range(len(self.layout.plan.aggregates))]


def exactly(function: str, values: list[float]) -> Fraction | None:
    """The variance (of the standard deviation's square) as a fraction."""
    n, sample = len(values), function.endswith("_samp")
    if n <= sample:
        return None
    mean = sum(map(Fraction, values), Fraction(0)) / n
    return sum((Fraction(x) - mean) ** 2 for x in values) / (n - sample)


def assert_right(shown: list[float | None], values: list[float], relative: float = 1e-15) -> None:
    for function, got in zip(FUNCTIONS, shown, strict=True):
        expected = exactly(function, values)
        if expected is None:
            assert got is None
            continue
        assert got is not None
        right = float(expected) if function.startswith("var") else math.sqrt(float(expected))
        assert got == right or abs(got - right) <= relative * right, (function, got, right)


VALUES = st.one_of(st.floats(-1e6, 1e6, allow_subnormal=False), st.integers(-3, 3).map(float), st.just(0.1))


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from([0.0, 1.0, 1e8, -1e12, 1e15]))
def test_after_every_batch_it_is_the_variance_of_what_is_there(data, mean):
    view, rows = Kept(layout_of(*FUNCTIONS)), Counter()
    for _ in range(data.draw(st.integers(1, 5))):
        entries = [(mean + x, 1) for x in data.draw(st.lists(VALUES, max_size=6))]
        there = sorted(rows.elements())
        gone = data.draw(st.lists(st.integers(0, len(there) - 1), unique=True)) if there else []
        entries += [(there[i], -1) for i in gone]
        for x, n in entries:
            rows[x] += n
        view.step([x for x, _ in entries] + [None], [n for _, n in entries] + [1])
        assert_right(view.shown(), list(rows.elements()), relative=1e-12)


@pytest.mark.parametrize("mean", [0.0, 1.0, 1e6, 1e9, 1e12, 1e15])
def test_a_mean_far_above_the_deviation_costs_no_digit(mean):
    rng = np.random.default_rng(7)
    values = (mean + rng.normal(size=2000)).tolist()
    view = Kept(layout_of(*FUNCTIONS))
    view.step(values, [1] * len(values))
    assert_right(view.shown(), values)


@pytest.mark.parametrize("x", [0.1, -3.7e9, 1e130, 7e-140, 0.0, 123456789.123])
def test_values_that_are_all_the_same_have_a_variance_of_exactly_nothing(x):
    view = Kept(layout_of(*FUNCTIONS))
    for size in (1, 2, 50, 1000):
        view.step([x] * size, [1] * size)
        assert view.shown() == ([0.0, None, 0.0, None] if size == 1 else [0.0] * 4)


@pytest.mark.parametrize("outlier", [1e6, 1e12, -1e15, 1e20])
def test_large_values_that_came_and_went_leave_no_trace(outlier):
    rng = np.random.default_rng(3)
    kept, passing = rng.integers(0, 10_000, 300) / 100, outlier * rng.uniform(0.5, 1.5, 40)
    view = Kept(layout_of(*FUNCTIONS))
    order = rng.permutation(len(passing))
    view.step([*kept, *passing], [1] * 340)
    for i in order:
        view.step([passing[i]], [-1])
    assert_right(view.shown(), kept.tolist(), relative=1e-9)


def test_back_to_one_row_it_is_zero_and_back_to_none_it_is_null():
    pick = random.Random(1)
    values = [pick.uniform(-1e9, 1e9) for _ in range(50)]
    view = Kept(layout_of(*FUNCTIONS, "count"))
    view.step(values, [1] * 50)
    for x in values[1:]:
        view.step([x], [-1])
    assert view.shown() == [0.0, None, 0.0, None, 1]
    view.step([None], [1])
    view.step(values[:1], [-1])
    assert view.shown() == [None, None, None, None, 0], "a row is there, and no value"
    view.step([None], [-1])
    assert view.shown() == [None, None, None, None, 0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e130, 1e130), st.sampled_from([1, 1, 2, -1])), max_size=20))
def test_it_is_never_negative_and_never_nan(entries):
    view = Kept(layout_of("var_pop", nullable=False))
    for x, n in entries:
        view.step([x, x, x], [3, n, -1])
        (shown,) = view.shown()
        assert shown is None or shown >= 0


def test_multiplicities_are_weights():
    view = Kept(layout_of(*FUNCTIONS))
    view.step([1.5, 2.25, -8.0], [3, 10_000, 7])
    assert_right(view.shown(), [1.5] * 3 + [2.25] * 10_000 + [-8.0] * 7)


def test_sums_and_averages_of_the_same_argument_share_what_is_kept():
    layout = layout_of("sum", "avg", "stddev_pop", "count")
    assert [part.role for part in layout.components] == ["rows", "present", "sum", "squares"]
    view = Kept(layout)
    view.step([0.1, 0.2, 0.4, None], [1, 1, 1, 1])
    total, average, deviation, count = view.shown()
    assert (total, average, count) == (math.fsum([0.1, 0.2, 0.4]), math.fsum([0.1, 0.2, 0.4]) / 3, 3)
    assert deviation == pytest.approx(np.std([0.1, 0.2, 0.4]), rel=1e-15)


def test_a_change_that_moves_the_variance_only_is_a_change():
    view = Kept(layout_of("var_pop"))
    view.step([1.0, 3.0], [1, 1])
    done = view.step([1.0, 3.0, 0.0, 4.0], [-1, -1, 1, 1])
    assert done.changes is not None
    old, new = read_changes(view.layout, done.changes)
    assert (old.column("a0").to_pylist(), new.column("a0").to_pylist()) == ([1.0], [4.0])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1.5e135, -1e200])
def test_values_whose_squares_cannot_be_taken_away_again_are_refused(wrong):
    layout = layout_of("stddev_samp")
    rows = Evaluated([], [pa.array([1e135, wrong, None])], np.array([1, 1, 1]), np.arange(3))
    reason = "NaN or infinity (or more than 1e135) in x, whose squares the view sums"
    assert not_summable(layout, rows) == {1: reason}
    with pytest.raises(ArithmeticOverflowError, match=r"whose squares the view sums \(in 1 of"):
        deltas(layout, rows, group_words(layout, rows))


RELATED = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxy")
MOMENTS = ("scatter", "skewness", "kurtosis", "var_samp_distinct", "skewness_distinct", "kurtosis_distinct")


def moments_layout() -> ViewLayout:
    arguments = (column("x", DOUBLE, True), column("y", DOUBLE, True))
    aggregates = [Aggregate(f, 0, DOUBLE, f"{f}(x, y)", (1,)) for f in RELATED]
    aggregates += [Aggregate(f, 0, DOUBLE, f"{f}(x)") for f in MOMENTS]
    return ViewLayout(ViewPlan(TableRows("t"), Shape.TOTAL, (), arguments, tuple(aggregates), None, ()), seed=2)


def exact_moments(rows: list[tuple[float, float]]) -> list[float | None]:
    """The definitions, in exact arithmetic up to the last root."""
    n = len(rows)
    if not n:
        return [None] * (len(RELATED) + len(MOMENTS))
    x, y = ([Fraction(value) for value in column] for column in zip(*rows, strict=True))
    mean, other = sum(x) / n, sum(y) / n
    xx, yy = sum((a - mean) ** 2 for a in x), sum((b - other) ** 2 for b in y)
    xy = sum((a - mean) * (b - other) for a, b in zip(x, y, strict=True))
    slope = xy / yy if yy else None
    out: list[Fraction | float | None] = [
        xy / n,
        xy / (n - 1) if n > 1 else None,
        float(xy) / math.sqrt(xx) / math.sqrt(yy) if xx and yy else None,
        slope,
        None if slope is None else mean - slope * other,
        None if not yy else xy * xy / xx / yy if xx else Fraction(1),
        xy,
        xx,
    ]
    for values in (x, sorted(set(x))):
        m, middle = len(values), sum(values) / len(values)
        second, third, fourth = (sum((a - middle) ** k for a in values) for k in (2, 3, 4))
        if values is not x:
            out.append(second / (m - 1) if m > 1 else None)
        out.append(math.sqrt(m) * float(third) / float(second) ** 1.5 if second else None)
        out.append(m * fourth / second**2 - 3 if second else None)
    return [value if value is None else float(value) for value in out]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mean", [0.0, 1e6, -1e9])
def test_moments_and_regressions_are_those_of_exact_arithmetic(seed: int, mean: float) -> None:
    choose = random.Random(seed)
    kept, there = Kept(moments_layout()), list[tuple[float, float]]()

    def step(changes: list[tuple[tuple[float, float], int]]) -> None:
        x, y = zip(*(row for row, _ in changes), strict=True)
        columns = [pa.array(x, pa.float64()), pa.array(y, pa.float64())]
        rows = Evaluated([], columns, np.array([n for _, n in changes], np.int64), np.arange(len(changes)))
        arrived = deltas(kept.layout, rows, group_words(kept.layout, rows))
        done = maintain(kept.layout, kept.state, {name: [run] for name, run in arrived.items()})
        for name, run in done.runs.items():
            kept.state[name] += [run] if run.rows else []

    for _ in range(12):
        coming = [(mean + choose.randint(-40, 40) / 8, choose.uniform(-3, 3)) for _ in range(choose.randint(1, 6))]
        leaving = choose.sample(there, min(len(there), choose.randint(0, 7)))
        for row in leaving:
            there.remove(row)
        there += coming
        step([*((row, 1) for row in coming), *((row, -1) for row in leaving)])
        # What is subtracted from a mean loses the digits of the mean: an intercept is as good as its slope.
        tolerance = 1e-9 + abs(mean) * 1e-13
        for found, right in zip(kept.shown(), exact_moments(there), strict=True):
            assert (found is None) == (right is None)
            assert found is None or found == pytest.approx(right, rel=1e-11, abs=tolerance)


def test_powers_that_would_be_infinite_are_refused_with_the_power() -> None:
    for function, largest, power in (("kurtosis", 1e60, "fourth powers"), ("skewness", 1e85, "cubes")):
        layout = layout_of(function)
        rows = Evaluated([], [pa.array([largest, 2 * largest])], np.ones(2, np.int64), np.arange(2))
        ((row, reason),) = not_summable(layout, rows).items()
        assert row == 1
        assert power in reason
