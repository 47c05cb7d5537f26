"""Laws that every registered model obeys, tried on rows in memory, without an engine and without Spark.

A law is a function of a model and of random rows. `MODELS` of `learn.registry` is what they are tried on: a model that
is added there has to be in `EXAMPLES` here, and obeys without a test being written for it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.errors import NotEnoughDataError
from headrace.learn.chow_liu import ChowLiuTree
from headrace.learn.counted_rows import CountedRows
from headrace.learn.elastic_net import ElasticNet
from headrace.learn.learner import Learner
from headrace.learn.mixed_moments import Category, MixedMoments
from headrace.learn.moments import Moments
from headrace.learn.mutual_information import MutualInformation
from headrace.learn.naive_bayes import NaiveBayes
from headrace.learn.pca import PCA
from headrace.learn.polynomial import products_of
from headrace.learn.registry import KIND, MODELS, model_of, settings_of
from headrace.learn.regression import LinearRegression

NUMBERS, CATEGORIES = ("a", "b", "y"), ("k", "l", "m")
# Each model by default and with settings, as a user would write it over the columns of `rows`.
EXAMPLES: dict[str, tuple[Learner, ...]] = {
    "LinearRegression": (
        LinearRegression("y"),
        LinearRegression("y", ["b", "a"], alpha=2.0, solver="gradient", tolerance=1e-12, polynomial=["a"]),
        LinearRegression("y", ["a", "m", "k"], alpha=1.0, drop={"m": "green"}, unknown="reference"),
    ),
    "ElasticNet": (
        ElasticNet("y"),
        ElasticNet("y", ["b"], alpha=0.1, l1_ratio=1.0, polynomial=["b", "a"]),
        ElasticNet("y", ["m", "b", "k"], alpha=0.05, drop=None),
    ),
    "PCA": (PCA(), PCA(n_components=2, features=["y", "a", "b"], scale=True)),
    "MutualInformation": (MutualInformation(), MutualInformation(["l", "a"], "k", bins={"a": [-0.5, 0.5]})),
    "ChowLiuTree": (ChowLiuTree(), ChowLiuTree(["m", "b", "k"], bins={"b": [0.0]})),
    "NaiveBayes": (NaiveBayes("m"), NaiveBayes("k", ["b", "l"], alpha=0.5, fit_prior=False, bins={"b": [0.0, 1.0]})),
}


def rows(seed: int, count: int = 60) -> pd.DataFrame:
    """Random rows with numbers and categories that depend on one another."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=count)
    b = 0.4 * a + rng.normal(size=count) + 2
    y = 3 * a - b + rng.normal(size=count)
    k = np.where(a + 0.3 * rng.normal(size=count) > 0, "up", "down")
    level = rng.integers(0, 3, count) + (k == "up")
    m = np.array(["red", "green", "blue"])[(level + rng.integers(0, 2, count)) % 3]
    return pd.DataFrame({"a": a, "b": b, "y": y, "k": k, "l": level, "m": m})


def payload(model: Learner, frame: pd.DataFrame) -> Any:
    """The payload that a model needs, of rows in memory: its columns, or all of the right kind."""
    needs = model.needs()
    frame = frame.copy()
    for derived in needs.derived:
        if derived.replaces:
            edges = model.settings()["bins"][derived.name]
            frame[derived.name] = np.searchsorted(edges, frame[derived.name], side="right")
    if needs.counts:
        return CountedRows(frame[list(needs.columns or CATEGORIES)])
    products = products_of(model.settings().get("polynomial", ()))
    for name, (left, right) in products.items():
        frame[name] = frame[left] * frame[right]
    names = list(needs.columns or [*NUMBERS, *products])
    texts = [name for name in names if name in ("k", "m")]
    return mixed(frame, [name for name in names if name not in texts], texts)


def mixed(frame: pd.DataFrame, numbers: Sequence[str], categories: Sequence[str]) -> Moments | MixedMoments:
    """The moments of rows in memory, by level of the categories if there are any."""
    values = frame[list(numbers)].to_numpy(np.float64)
    moments = Moments(tuple(numbers), len(frame), values.sum(axis=0), values.T @ values)
    if not categories:
        return moments
    coded = {name: np.unique(frame[name].to_numpy(), return_inverse=True) for name in categories}
    found = {}
    for name, (levels, codes) in coded.items():
        one_hot = codes == np.arange(len(levels))[:, None]
        found[name] = Category(pa.array(levels.tolist(), pa.string()), one_hot.sum(axis=1), one_hot @ values)
    pairs = {}
    for a, b in combinations(categories, 2):
        table = np.zeros((len(found[a]), len(found[b])), np.int64)
        np.add.at(table, (coded[a][1], coded[b][1]), 1)
        first, second = (codes.astype(np.int64) for codes in np.nonzero(table))
        pairs[a, b] = (first, second, table[first, second])
    return MixedMoments(moments, found, pairs)


def settings_make_the_same_model(model: Learner, seed: int) -> None:
    """What is stored of a model, as JSON, makes a model that says, asks for and learns the same."""
    stored = settings_of("m", model)
    again = model_of(json.loads(json.dumps(stored)))
    assert settings_of("m", again) == stored
    assert stored[KIND] == type(model).__name__
    assert (repr(again), again.says(), again.needs()) == (repr(model), model.says(), model.needs())
    assert repr(model).startswith(f"{type(model).__name__}(")
    given = payload(model, rows(seed))
    assert again.fit(given).rows() == model.clone().fit(given).rows()


def fitting_leaves_the_settings(model: Learner, seed: int) -> None:
    """Fitting changes no setting, returns the model itself, and leaves its clones unfitted."""
    fitted = model.clone()
    before = fitted.settings()
    assert fitted.fit(payload(model, rows(seed))) is fitted
    assert fitted.settings() == before == model.settings()
    assert _refused(fitted.clone().rows)


def what_is_shown_is_there(model: Learner, seed: int) -> None:
    """Once a model is fitted it has all that its handle shows, and plain rows with the same columns."""
    fitted = model.clone().fit(payload(model, rows(seed)))
    for name in fitted.shown:
        if not (name == "ranking_" and fitted.settings()["label"] is None):
            assert getattr(fitted, name) is not None, name
    found = fitted.rows()
    assert found
    assert json.loads(json.dumps(found)) == found
    assert len({tuple(row) for row in found}) == 1
    assert "count_" in fitted.shown
    assert fitted.count_ == 60  # type: ignore[attr-defined]


def fitting_again_forgets(model: Learner, seed: int) -> None:
    """A model that was fitted to other rows before learns the same as a new one."""
    again = model.clone()
    for other in (seed + 1, seed):
        again.fit(payload(model, rows(other)))
    fresh = model.clone().fit(payload(model, rows(seed)))
    assert_rows(again.rows(), fresh.rows())


def rows_in_any_order_teach_the_same(model: Learner, seed: int) -> None:
    """The order of rows does not matter, nor that in which levels were first seen."""
    frame = rows(seed)
    shuffled = frame.sample(frac=1.0, random_state=seed % 1000)
    expected = model.clone().fit(payload(model, frame)).rows()
    assert_rows(model.clone().fit(payload(model, shuffled)).rows(), expected)


def without_rows_there_is_a_reason(model: Learner, seed: int) -> None:
    """No rows, and no fit, are refused in words of Headrace, whatever is asked for."""
    assert _refused(lambda: model.clone().fit(payload(model, rows(seed).iloc[:0])))
    assert _refused(model.clone().rows)


LAWS: tuple[Callable[[Learner, int], None], ...] = (
    settings_make_the_same_model,
    fitting_leaves_the_settings,
    what_is_shown_is_there,
    fitting_again_forgets,
    rows_in_any_order_teach_the_same,
    without_rows_there_is_a_reason,
)


def model_laws() -> Iterator[tuple[Callable[[Learner, int], None], Learner]]:
    """Every law with every example of every registered model."""
    for kind in MODELS:
        for model in EXAMPLES[kind]:
            for law in LAWS:
                yield law, model


def assert_rows(actual: list[dict[str, Any]], expected: list[dict[str, Any]], relative: float = 1e-7) -> None:
    """Fail unless rows are the same, numbers up to rounding."""
    assert [list(row) for row in actual] == [list(row) for row in expected]
    for one, other in zip(actual, expected, strict=True):
        for name, value in other.items():
            if isinstance(value, float):
                assert abs(one[name] - value) <= relative * max(1.0, abs(value)), (name, one[name], value)
            else:
                assert one[name] == value


def _refused(action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            action()
        except NotEnoughDataError:
            return True
    return False
