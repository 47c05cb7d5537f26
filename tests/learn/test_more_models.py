"""Elastic nets, products of columns, principal components and correlations from moments, against scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import decomposition, linear_model
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from tests.seeds import seeds

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn.elastic_net import ElasticNet
from headrace.learn.linear import NotConvergedWarning
from headrace.learn.moments import Moments
from headrace.learn.pca import PCA
from headrace.learn.regression import LinearRegression
from headrace.testing.models import mixed
from headrace.testing.models import rows as random_rows

NAMES = ("a", "b", "c", "d", "y")


def of(frame: pd.DataFrame, shift: bool = False) -> Moments:
    values = frame.to_numpy(np.float64)
    less = values.mean(axis=0).round(1) if shift else np.zeros(values.shape[1])
    values = values - less
    return Moments(tuple(frame.columns), len(frame), values.sum(axis=0), values.T @ values, less)


def drawn(seed: int, rows: int = 300) -> pd.DataFrame:
    """Correlated features in different units, a label that needs some of them, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)) @ rng.normal(size=(4, 4)) * [1, 100, 0.01, 5] + [3, -50, 2, 0]
    y = x @ [1.5, -0.02, 0, 0.4] + 7 + rng.normal(size=rows)
    return pd.DataFrame(np.column_stack([x, y]), columns=NAMES)


@seeds("elastic net", 4)
@pytest.mark.parametrize("l1_ratio", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("alpha", [0.001, 0.2, 3.0])
def test_elastic_nets_are_those_of_scikit_learn(seed: int, alpha: float, l1_ratio: float) -> None:
    frame = drawn(seed)
    model = ElasticNet("y", alpha=alpha, l1_ratio=l1_ratio).fit(of(frame, shift=True))
    peer = linear_model.ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-14, max_iter=1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its gap ends a little above 1e-14 now and then
        peer.fit(frame[list(NAMES[:-1])].to_numpy(), frame["y"].to_numpy())
    size = frame[list(NAMES[:-1])].std().to_numpy()
    np.testing.assert_allclose(model.coef_ * size, peer.coef_ * size, rtol=1e-6, atol=1e-7)
    assert model.intercept_ == pytest.approx(peer.intercept_, rel=1e-6, abs=1e-6)
    assert model.selected_ == tuple(np.array(NAMES[:-1])[peer.coef_ != 0])
    predicted = peer.predict(frame[list(NAMES[:-1])].to_numpy())
    np.testing.assert_allclose(model.predict(frame), predicted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("drop", ["first", None, {"k": "up"}])
def test_elastic_nets_take_categories(drop: str | dict[str, str] | None) -> None:
    """Equal to scikit-learn over one-hot columns, without the columns of the reference levels."""
    frame = random_rows(3, 300)
    model = ElasticNet("y", ["a", "k", "m"], alpha=0.03, drop=drop).fit(mixed(frame, ["a", "y"], ["k", "m"]))
    levels = {"k": ["down", "up"], "m": ["blue", "green", "red"]}
    reference = {"k": "down", "m": "blue"} if drop else {}
    reference |= drop if isinstance(drop, dict) else {}
    columns = {"a": frame["a"]}
    for name, values in levels.items():
        columns |= {f"{name}={v}": (frame[name] == v).astype(float) for v in values if reference.get(name) != v}
    wide = pd.DataFrame(columns)
    peer = linear_model.ElasticNet(alpha=0.03, tol=1e-14, max_iter=100_000).fit(wide.to_numpy(), frame["y"].to_numpy())
    assert model.feature_names_ == tuple(wide.columns)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.predict(frame), peer.predict(wide.to_numpy()), rtol=1e-6)
    assert model.score(mixed(frame, ["a", "y"], ["k", "m"])) == pytest.approx(model.score(frame))
    assert np.isnan(model.predict(frame.head(1).assign(k="sideways")).iloc[0])


def test_a_refit_goes_on_from_the_last_coefficients() -> None:
    frame = drawn(1)
    model = ElasticNet("y", alpha=0.01).fit(of(frame))
    cold = model.iterations_
    assert model.fit(of(frame.iloc[1:])).iterations_ < cold
    fresh = ElasticNet("y", alpha=0.01).fit(of(frame.iloc[1:]))
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-8, atol=1e-12)


def test_a_large_penalty_leaves_the_mean_and_a_constant_feature_gets_nothing() -> None:
    frame = drawn(2).assign(c=4.0)
    model = ElasticNet("y", alpha=1e6).fit(of(frame))
    assert (model.coef_ == 0).all()
    assert model.intercept_ == pytest.approx(frame["y"].mean())
    assert ElasticNet("y", alpha=1e-3).fit(of(frame)).coef_[2] == 0.0


def test_a_descent_that_is_stopped_is_told() -> None:
    with pytest.warns(NotConvergedWarning, match="1 sweeps") as caught:
        ElasticNet("y", alpha=1e-6, max_iterations=1).fit(of(drawn(3)))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "wrong", [{"alpha": -1}, {"l1_ratio": 1.5}, {"tolerance": 0}, {"max_iterations": 0}, {"polynomial": "a"}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SchemaError, match=str(next(iter(wrong)))):
        ElasticNet("y", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [LinearRegression, ElasticNet])
def test_products_of_columns_are_those_of_scikit_learn(kind: type[LinearRegression] | type[ElasticNet]) -> None:
    frame = drawn(5)
    chosen = ["a", "d"]
    expand = PolynomialFeatures(2, include_bias=False).set_output(transform="pandas")
    wide = expand.fit_transform(frame[chosen])
    alpha = 0.05
    model = kind("y", chosen, alpha=alpha, polynomial=chosen).fit(of(wide.assign(y=frame["y"])))
    peer = linear_model.Ridge(alpha) if kind is LinearRegression else linear_model.ElasticNet(alpha, tol=1e-14)
    peer.fit(wide.to_numpy(), frame["y"].to_numpy())
    assert model.feature_names_ == tuple(wide.columns) == ("a", "d", "a^2", "a d", "d^2")
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.predict(frame), peer.predict(wide.to_numpy()), rtol=1e-7)
    arrow = pa.Table.from_pandas(frame)
    np.testing.assert_allclose(model.predict(arrow), model.predict(frame))
    np.testing.assert_allclose(model.predict(arrow.to_batches()[0]), model.predict(frame))
    assert model.score(frame) == pytest.approx(peer.score(wide.to_numpy(), frame["y"].to_numpy()))
    assert model.score(frame) == pytest.approx(model.score(of(wide.assign(y=frame["y"]))))
    assert "a^2" not in frame.columns  # the caller's table is left alone


def test_moments_without_the_products_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"'a\^2'"):
        LinearRegression("y", polynomial=["a"]).fit(of(drawn(6)))


@seeds("pca", 4)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("components", [None, 1, 3])
def test_components_are_those_of_scikit_learn(seed: int, components: int | None, scale: bool) -> None:
    frame = drawn(seed)
    model = PCA(components, scale=scale).fit(of(frame, shift=True))
    values = StandardScaler().fit_transform(frame) if scale else frame.to_numpy()
    peer = decomposition.PCA(components, svd_solver="full").fit(values)
    signs = np.sign((model.components_ * peer.components_).sum(axis=1))[:, None]
    np.testing.assert_allclose(model.components_, peer.components_ * signs, atol=1e-5)
    tiny = 1e-10 * peer.explained_variance_[0]
    for what in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
        np.testing.assert_allclose(getattr(model, what), getattr(peer, what), rtol=1e-6, atol=1e3 * tiny)
    assert model.noise_variance_ == pytest.approx(peer.noise_variance_, rel=1e-6, abs=tiny)
    shown = model.transform(frame).to_numpy()
    np.testing.assert_allclose(shown, peer.transform(values) * signs.T, atol=1e-4)
    np.testing.assert_allclose(np.column_stack(model.transform(pa.Table.from_pandas(frame)).columns), shown)


def test_the_largest_entry_of_a_component_is_positive() -> None:
    for seed in range(5):
        directions = PCA().fit(of(drawn(seed))).components_
        largest = np.abs(directions).argmax(axis=1)
        assert (directions[np.arange(len(directions)), largest] > 0).all()


def test_components_that_cannot_be_are_refused() -> None:
    with pytest.raises(SchemaError, match="n_components=3 of 2"):
        PCA(3, ["a", "b"])
    with pytest.raises(SchemaError, match="n_components=9 of 5"):
        PCA(9).fit(of(drawn(1)))
    with pytest.raises(NotEnoughDataError, match="two rows"):
        PCA().fit(of(drawn(1).iloc[:1]))
    with pytest.raises(SchemaError, match="no predictions"):
        PCA().fit(of(drawn(1))).predict(drawn(1))


@seeds("correlation", 3)
def test_correlations_are_those_of_numpy(seed: int) -> None:
    frame = drawn(seed).assign(flat=3.0)
    found = of(frame, shift=True).correlation()
    expected = np.corrcoef(frame[list(NAMES)].to_numpy().T)
    np.testing.assert_allclose(found[:-1, :-1], expected, atol=1e-9)
    assert np.isnan(found[-1]).all()
    ranked = of(frame, shift=True).ranking("y")
    assert [name for name, _ in ranked][-1] == "flat"
    sizes = frame[list(NAMES)].corr()["y"].drop("y").abs().sort_values(ascending=False)
    assert [name for name, _ in ranked][:-1] == list(sizes.index)
