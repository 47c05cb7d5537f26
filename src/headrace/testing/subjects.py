"""What the laws are tried on: one subject per strategy, handle and estimator that is registered.

A subject is tables, something that is kept fresh over them, random changes, and how the answer is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.datasets.delays import Uniform
from headrace.datasets.disorder import Stream, generate
from headrace.engine.strategies import STRATEGIES
from headrace.errors import UnsupportedSQLError
from headrace.factorized.planner import STRATEGIES as VIEW_TREES
from headrace.learn.learner import Learner
from headrace.learn.registry import MODELS
from headrace.relation.outer import entries
from headrace.relation.schema import DIFF
from headrace.thrifty.strategy import F_SQL, FACTORIZED, MATRIX_CHAIN, ONE_TABLE, OPERATORS, RECOMPUTE
from headrace.window.estimators import ESTIMATORS

Step = Mapping[str, pa.Table]
Define = Callable[[hr.Engine], Any]


@dataclass(frozen=True)
class Subject:
    """Something that is kept fresh.

    Parameters
    ----------
    tables : registers the tables that it reads.
    make : creates it, and returns its handle.
    steps : changes that are valid in this order, in as many steps as asked for.
    refused : a definition of the same kind that no engine takes.
    answer : the answer of a handle.
    tells_changes : whether the handle has `changes()`; moments and models have none.
    strategy : that by which it must say that it is kept; empty where none is asked for.
    """

    name: str
    tables: Define
    make: Define
    steps: Callable[[int, int], list[Step]]
    refused: Define
    answer: Callable[[Any], pa.Table] = lambda handle: handle.to_arrow()
    tells_changes: bool = True
    strategy: str = ""

    def __str__(self) -> str:
        return self.name


_STAR = "FROM sale JOIN shop ON sale.shop = shop.id"
_QUERIES = (
    f"SELECT city, COUNT(*) AS n, SUM(sale.price) AS price, SUM(shop.rent) AS rent {_STAR} GROUP BY city",
    "SELECT shop, COUNT(*) AS n, SUM(price) AS price, MAX(pieces) AS pieces FROM sale GROUP BY shop",
)
_MOMENTS = f"SELECT sale.price, sale.pieces, shop.rent {_STAR}"


def subjects() -> Iterator[Subject]:
    """All subjects: each strategy with each kind of definition that it keeps, and each estimator of window joins.

    Products of matrices are kept by one strategy.
    """
    made = {"view": _view, "covariance": _covariance, "model": _model}
    for strategy in STRATEGIES:
        for kind in strategy.kinds:
            # F-SQL is a way to write moments; a query is SQL already.
            if kind in made and (kind, strategy.name) != ("view", F_SQL):
                yield made[kind](strategy.name)
    yield _stacked()
    yield _factorized_result()
    for kind in MODELS:
        if kind != hr.LinearRegression.__name__:  # which every strategy has been tried with
            yield _other_model(kind)
    yield from map(_levels, VIEW_TREES)
    yield from map(_windows, ESTIMATORS)
    yield _matrices()


def _asked(strategy: str) -> dict[str, Any]:
    """How users ask for a strategy; that of one table is not asked for, but taken."""
    return {RECOMPUTE: {"refresh": "full"}, ONE_TABLE: {}}.get(strategy, {"strategy": strategy})


def _view(strategy: str) -> Subject:
    def make(engine: hr.Engine) -> Any:
        for sql in _QUERIES[::-1] if strategy == ONE_TABLE else _QUERIES:
            try:
                return engine.view("kept", sql, **_asked(strategy))
            except UnsupportedSQLError as error:
                reason = error
        raise reason

    refused = f"{_QUERIES[0]} HAVING rand() > 0"
    return Subject(
        f"view, {strategy}",
        _star_tables,
        make,
        _star_steps,
        lambda engine: engine.view("other", refused, **_asked(strategy)),
        strategy=strategy,
    )


def _stacked() -> Subject:
    """A view over a view, which hands on what changes in it."""

    def make(engine: hr.Engine) -> Any:
        engine.view("below", _QUERIES[1])
        return engine.view("kept", "SELECT n, COUNT(*) AS shops, SUM(price) AS price FROM below GROUP BY n")

    return Subject(
        "view, over a view",
        _star_tables,
        make,
        _star_steps,
        lambda engine: engine.view("other", "SELECT n + rand() AS n FROM below"),
        strategy=OPERATORS,
    )


def _factorized_result() -> Subject:
    """The rows of a join as a hierarchy of views, which has no changes row by row."""
    rows = f"SELECT shop, price, pieces, city, rent {_STAR}"
    return Subject(
        "view, factorized result",
        _star_tables,
        lambda engine: engine.view("kept", rows, representation=FACTORIZED),
        _star_steps,
        lambda engine: engine.view("other", _QUERIES[0], representation=FACTORIZED),
        tells_changes=False,
        strategy=FACTORIZED,
    )


def _covariance(strategy: str) -> Subject:
    return Subject(
        f"covariance, {strategy}",
        _star_tables,
        lambda engine: engine.covariance("kept", _MOMENTS, **_asked(strategy)),
        _star_steps,
        lambda engine: engine.covariance("other", _MOMENTS, ["colour"], **_asked(strategy)),
        _flat,
        tells_changes=False,
        strategy=strategy,
    )


def _levels(strategy: str) -> Subject:
    over = f"SELECT sale.price, shop.rent, shop.city, sale.pieces {_STAR}"
    return Subject(
        f"levels, {strategy}",
        _star_tables,
        lambda engine: engine.covariance("kept", over, categorical=["pieces"], **_asked(strategy)),
        _star_steps,
        lambda engine: engine.covariance("other", over, categorical=["colour"], **_asked(strategy)),
        _encoded,
        tells_changes=False,
        strategy=strategy,
    )


def _model(strategy: str) -> Subject:
    return Subject(
        f"model, {strategy}",
        _star_tables,
        lambda engine: engine.model("kept", hr.LinearRegression(label="price"), _MOMENTS, **_asked(strategy)),
        _star_steps,
        lambda engine: engine.model("other", hr.LinearRegression(label="colour"), _MOMENTS, **_asked(strategy)),
        _coefficients,
        tells_changes=False,
    )


def _other_model(kind: str) -> Subject:
    """A registered model over columns of the star, with defaults but for what it must be told."""
    columns = "sale.price, sale.pieces, shop.rent"
    made: Callable[..., Learner] = MODELS[kind]
    given = {"label": "price"} if "label" in signature(made).parameters else {}
    return Subject(
        f"model, {kind}",
        _star_tables,
        lambda engine: engine.model("kept", made(**given), f"SELECT {columns} {_STAR}"),
        _star_steps,
        lambda engine: engine.model("other", made(**given, features=["colour"]), f"SELECT {columns} {_STAR}"),
        tells_changes=False,
    )


_SHAPES = {"a1": (6, 40), "a2": (40, 70), "a3": (70, 5)}


def _matrices() -> Subject:
    """A chain of matrices; whole numbers, so that products are exact in any order."""
    return Subject(
        "matrix chain",
        lambda engine: None,
        lambda engine: engine.matrix_chain("kept", _SHAPES),
        _matrix_steps,
        lambda engine: engine.matrix_chain("other", {"a1": (6, 40), "a3": (70, 5)}),
        tells_changes=False,
        strategy=MATRIX_CHAIN,
    )


def _matrix_steps(seed: int, count: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    steps: list[Step] = []
    for _ in range(count):
        step = {}
        for name, (m, n) in _SHAPES.items():
            product = hr.outer(rng.integers(-2, 3, m), rng.integers(-2, 3, n))
            some = entries((rng.random((m, n)) < 0.05) * rng.integers(-3, 4, (m, n)))
            rows = pa.concat_tables([product.rows(), some])
            diff = np.where(rows["term"].is_valid().to_numpy(), 1, rng.choice([-1, 1], rows.num_rows))
            step[name] = rows.append_column(DIFF, pa.array(diff))
        steps.append(step)
    return steps


def _windows(estimator: str) -> Subject:
    return Subject(
        f"window join, {estimator}",
        _stream_tables,
        lambda engine: _window_join(engine, "kept", estimator),
        _stream_steps,
        lambda engine: _window_join(engine, "other", estimator, agg="median(v)"),
    )


def _star_tables(engine: hr.Engine) -> None:
    engine.table("shop", "id BIGINT NOT NULL, city STRING, rent BIGINT NOT NULL", key="id")
    engine.table(
        "sale",
        "id BIGINT NOT NULL, shop BIGINT, price BIGINT NOT NULL, pieces BIGINT NOT NULL",
        key="id",
        references={"shop": "shop"},
    )


def _star_steps(seed: int, count: int) -> list[Step]:
    """Sales that come and go; shops come before their sales and stay, but their rent changes."""
    rng = random.Random(seed)
    rents = {i: rng.randrange(5, 50) for i in range(12)}
    cities = {i: rng.choice(["Ulm", "Bonn", None]) for i in rents}
    sales: dict[int, tuple[int | None, int, int]] = {}
    steps: list[Step] = []
    for number in range(count):
        shops = [(i, cities[i], rents[i], 1) for i in rents] if number == 0 else []
        for i in rng.sample(sorted(rents), 2 if number else 0):
            shops.append((i, cities[i], rents[i], -1))
            rents[i] = rng.randrange(5, 50)
            shops.append((i, cities[i], rents[i], 1))
        changed = []
        for i in rng.sample(sorted(sales), min(len(sales), 5)):
            changed.append((i, *sales.pop(i), -1))
        for _ in range(30):
            i = 1000 * number + len(changed)
            sales[i] = (rng.choice([None, *rents]), rng.randrange(1, 100), rng.randrange(1, 9))
            changed.append((i, *sales[i], 1))
        step = {"sale": _rows("id shop price pieces", changed)}
        steps.append({"shop": _rows("id city rent", shops), **step} if shops else step)
    return steps


def _rows(names: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = [list(values) for values in zip(*rows, strict=True)]
    kinds = [pa.large_string() if name == "city" else pa.int64() for name in [*names.split(), DIFF]]
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=[*names.split(), DIFF])


def _flat(handle: Any) -> pa.Table:
    """Moments as one column of numbers."""
    table = handle.to_arrow()
    numbers = [*table["count"].to_pylist(), *table["sums"][0].as_py(), *table["cofactor"][0].as_py()]
    return pa.table({"place": pa.array(range(len(numbers))), "value": pa.array(map(float, numbers), pa.float64())})


def _encoded(handle: Any) -> pa.Table:
    """Moments of the one-hot encoded rows as one column of numbers, for the levels that there are."""
    moments = handle.mixed_moments().one_hot()
    places = [f"{a} * {b}" for a in moments.features for b in moments.features]
    numbers = [moments.count, *moments.sums, *moments.cofactor.ravel()]
    values = pa.array(map(float, numbers), pa.float64())
    return pa.table({"place": pa.array(["count", *moments.features, *places]), "value": values})


def _coefficients(handle: Any) -> pa.Table:
    numbers = [float(handle.intercept_), *map(float, handle.coef_)]
    return pa.table({"place": pa.array(range(len(numbers))), "value": pa.array(numbers, pa.float64())})


def _stream_tables(engine: hr.Engine) -> None:
    for name in ("left", "right"):
        engine.table(name, "k BIGINT, v DOUBLE, at TIMESTAMP, came TIMESTAMP", append_only=True)


def _window_join(engine: hr.Engine, name: str, estimator: str, agg: str = "sum(v)") -> Any:
    return engine.window_join(
        name,
        "left",
        "right",
        on="k",
        time="at",
        arrival="came",
        window="10 ms",
        emit_after="8 ms",
        horizon="25 ms",
        agg=agg,
        estimator=estimator,
    )


def _stream_steps(seed: int, count: int) -> list[Step]:
    """Two streams in the order of their arrival, cut at the same moments."""
    delays = Uniform(5_000)
    streams = [generate(300_000, rate=3_000, delays=delays, seed=2 * (seed % 1000) + side) for side in range(2)]
    steps: list[Step] = []
    for low, high in pairwise(np.linspace(0, 310_000, count + 1)):
        parts = [s.take(np.flatnonzero((s.arrival >= low) & (s.arrival < high))) for s in streams]
        steps.append({name: _of_stream(part) for name, part in zip(("left", "right"), parts, strict=True)})
    return steps


def _of_stream(stream: Stream) -> pa.Table:
    moment = pa.timestamp("us", "UTC")
    times = {"at": pa.array(stream.event).cast(moment), "came": pa.array(stream.arrival).cast(moment)}
    return pa.table({"k": stream.key, "v": stream.value, **times})
