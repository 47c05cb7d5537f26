"""Moments by level as values: what models are fitted to, against pandas and scikit-learn on the encoded rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression as Sklearn
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn.elastic_net import ElasticNet
from headrace.learn.mixed_moments import Category, MixedMoments
from headrace.learn.moments import Moments
from headrace.learn.regression import LinearRegression

CATEGORIES = ["kind", "floor"]


def rows(seed: int, n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"area": rng.gamma(5, 20, n), "age": rng.normal(1e4, 3, n)})
    frame["kind"], frame["floor"] = rng.choice(["b", "a", "d", "c"], n), rng.integers(-1, 3, n)
    frame["price"] = 3 * frame["area"] - 5 * frame["floor"] + 40 * (frame["kind"] == "d") + rng.normal(0, 1, n)
    return frame


def moments_of(frame: pd.DataFrame, shift: float = 0.0) -> MixedMoments:
    numbers = ["area", "age", "price"]
    off = np.array([0.0, shift, 0.0])
    x = frame[numbers].to_numpy() - off
    codes = {name: pd.factorize(frame[name], sort=True) for name in CATEGORIES}
    categories = {}
    for name, (code, values) in codes.items():
        sums = np.zeros((len(values), 3))
        np.add.at(sums, code, x)
        categories[name] = Category(pa.array(values.to_numpy()), np.bincount(code), sums)
    pairs = frame.groupby([codes["kind"][0], codes["floor"][0]]).size()
    found = (*(pairs.index.get_level_values(i).to_numpy() for i in (0, 1)), pairs.to_numpy())
    return MixedMoments(
        Moments(tuple(numbers), len(frame), x.sum(axis=0), x.T @ x, off), categories, {("kind", "floor"): found}
    )


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_one_hot_moments_are_those_of_the_encoded_rows(shift: float) -> None:
    frame = rows(1)
    mixed = moments_of(frame, shift)
    encoded = OneHotEncoder(sparse_output=False).fit_transform(frame[CATEGORIES])
    x = np.column_stack([frame[["area", "age", "price"]], encoded])
    hot = mixed.one_hot()
    assert hot.features[3:] == ("kind=a", "kind=b", "kind=c", "kind=d", "floor=-1", "floor=0", "floor=1", "floor=2")
    np.testing.assert_allclose(hot.sums, x.sum(axis=0))
    np.testing.assert_allclose(hot.cofactor, x.T @ x)
    fewer = mixed.one_hot({"kind": 2})
    assert [name for name in hot.features if name not in fewer.features] == ["kind=c"]


@pytest.mark.parametrize(("drop", "alpha"), [("first", 0.0), ("first", 3.0), (None, 3.0)])
def test_regressions_are_those_of_scikit_learn(drop: str | None, alpha: float) -> None:
    frame = rows(2)
    model = LinearRegression("price", alpha=alpha, drop=drop).fit(moments_of(frame, 1e4))
    encoder = OneHotEncoder(drop=drop, sparse_output=False).fit(frame[CATEGORIES])
    x = np.column_stack([frame[["area", "age"]], encoder.transform(frame[CATEGORIES])])
    peer = (Ridge(alpha=alpha) if alpha else Sklearn()).fit(x, frame["price"])
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.predict(frame), peer.predict(x), atol=1e-6)
    assert model.score(frame) == pytest.approx(model.score(moments_of(frame, 1e4)))
    assert model.clone().drop == drop


def test_some_features_only_and_a_reference_of_ones_own() -> None:
    frame = rows(3)
    mixed = moments_of(frame)
    chosen = mixed.select(["floor", "price"])
    assert (chosen.features, chosen.categorical) == (("price", "floor"), ("floor",))
    named = LinearRegression("price", ["floor", "area"], drop={"floor": 1}).fit(mixed)
    assert named.feature_names_ == ("area", "floor=-1", "floor=0", "floor=2")
    assert named.reference_ == {"floor": 1}
    gone = LinearRegression("price", ["floor", "area"], drop={"floor": 77}).fit(mixed)
    assert gone.reference_ == {"floor": -1}
    np.testing.assert_allclose(named.predict(frame), gone.predict(frame), atol=1e-8)
    assert mixed.pair_table("floor", "kind").tolist() == mixed.pair_table("kind", "floor").T.tolist()
    left, right, counts = mixed.pair_counts("floor", "kind")
    assert (np.diff(left) >= 0).all()
    assert counts.sum() == len(frame) == mixed.count
    assert len(right) == len(left)
    assert mixed.pair_counts("kind", "kind")[2].tolist() == mixed.level_counts("kind").tolist()


def test_what_is_refused() -> None:
    mixed = moments_of(rows(4))
    with pytest.raises(SchemaError, match="'area' is continuous"):
        mixed.levels("area")
    with pytest.raises(SchemaError, match="no feature 'knd'"):
        mixed.select(["knd"])
    with pytest.raises(SchemaError, match="'kind' is categorical"):
        LinearRegression("kind").fit(mixed)
    with pytest.raises(SchemaError, match="drop='last'"):
        LinearRegression("price", drop="last")
    with pytest.raises(SchemaError, match="unknown='zero'"):
        LinearRegression("price", unknown="zero")
    many = Category(pa.array(range(20_001)), np.ones(20_001, np.int64), np.zeros((20_001, 1)))
    with pytest.raises(SchemaError, match="20,001 levels"):
        LinearRegression("y").fit(MixedMoments(Moments(("y",), 1, np.ones(1), np.ones((1, 1))), {"id": many}))
    nothing = Category(pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros((0, 1)))
    with pytest.raises(NotEnoughDataError, match="no rows"):
        LinearRegression("y").fit(MixedMoments(Moments(("y",), 0, np.zeros(1), np.zeros((1, 1))), {"k": nothing}))


@pytest.mark.parametrize("model", [LinearRegression("y"), LinearRegression("y", solver="gradient"), ElasticNet("y")])
def test_a_category_of_which_one_level_is_left_says_nothing(model: LinearRegression | ElasticNet) -> None:
    """Levels go with their rows: the last one is the reference, and the mean is all there is to say."""
    last = Category(pa.array(["a"]), np.array([4]), np.array([[10.0]]))
    mixed = MixedMoments(Moments(("y",), 4, np.array([10.0]), np.array([[30.0]])), {"k": last})
    model.fit(mixed)
    assert (model.feature_names_, model.intercept_, model.score(mixed)) == ((), 2.5, 0.0)
    assert model.predict(pa.table({"k": ["a", "b"]})).to_pylist() == [2.5, None]
