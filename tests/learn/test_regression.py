"""Linear regression from moments against scikit-learn on the rows."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import linear_model
from sklearn.metrics import r2_score

from headrace.errors import ArithmeticOverflowError, NotEnoughDataError, SchemaError
from headrace.learn import CollinearWarning, LinearRegression, Moments, NotConvergedWarning
from headrace.rings.covariance import lift_sum

NAMES = ("a", "b", "c", "d", "y")


def of_rows(features, rows, shift=None):
    less = rows if shift is None else rows - shift
    n = len(rows)
    payload = lift_sum(np.ascontiguousarray(less.T), np.ones(n, np.int64), np.zeros(n, np.int64), 1)
    return Moments.of_row(features, payload[0], shift)


@pytest.fixture
def rows():
    """Correlated features in different units, a label with noise."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 4)) @ rng.normal(size=(4, 4)) * [1, 100, 0.01, 5] + [3, -50, 2, 0]
    y = x @ [1.5, -0.02, 30, 0.4] + 7 + rng.normal(size=400)
    return np.column_stack([x, y])


def close(model, oracle, rtol=1e-8):
    np.testing.assert_allclose(model.coef_, oracle.coef_, rtol=rtol, atol=1e-12)
    assert model.intercept_ == pytest.approx(oracle.intercept_, rel=rtol)


def test_least_squares_is_that_of_scikit_learn(rows):
    model = LinearRegression("y").fit(of_rows(NAMES, rows))
    close(model, linear_model.LinearRegression().fit(rows[:, :4], rows[:, 4]))
    assert model.feature_names_ == NAMES[:4]
    assert (model.count_, model.rank_, model.iterations_) == (400, 4, 0)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 250.0])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("solver", ["cholesky", "gradient"])
def test_ridge_is_that_of_scikit_learn(rows, alpha, shifted, solver):
    moments = of_rows(NAMES, rows, rows.mean(axis=0) if shifted else None)
    model = LinearRegression("y", alpha=alpha, solver=solver, tolerance=1e-12).fit(moments)
    close(model, linear_model.Ridge(alpha=alpha).fit(rows[:, :4], rows[:, 4]))


@pytest.mark.parametrize(("label", "features"), [("y", ["c", "a"]), ("b", ["y", "d"]), ("c", None)])
def test_any_feature_can_be_the_label_and_any_others_its_features(rows, label, features):
    model = LinearRegression(label, features).fit(of_rows(NAMES, rows))
    chosen = features or [name for name in NAMES if name != label]
    frame = pd.DataFrame(rows, columns=NAMES)
    close(model, linear_model.LinearRegression().fit(frame[chosen].to_numpy(), frame[label].to_numpy()))


def test_collinear_features_are_named_and_get_the_smallest_coefficients(rows):
    x = np.column_stack([rows[:, 0], rows[:, 3], 2 * rows[:, 0] - 3 * rows[:, 3] + 1])
    moments = of_rows(("a", "d", "both", "y"), np.column_stack([x, rows[:, 4]]))
    with pytest.warns(CollinearWarning, match=r"rank 2 of 3\): '\w+' is a combination of '\w+', '\w+'; the") as caught:
        model = LinearRegression("y").fit(moments)
    assert caught[0].filename == __file__
    assert model.rank_ == 2
    close(model, linear_model.LinearRegression().fit(x, rows[:, 4]), rtol=1e-6)
    with pytest.warns(CollinearWarning):
        descended = LinearRegression("y", solver="gradient").fit(moments)
    close(descended, model, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a penalty decides between them
        ridge = LinearRegression("y", alpha=1.0).fit(moments)
    close(ridge, linear_model.Ridge(alpha=1.0).fit(x, rows[:, 4]))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("solver", ["cholesky", "gradient"])
def test_a_constant_feature_is_named_and_left_out(rows, value, solver):
    x = np.column_stack([rows[:, 0], np.full(400, value)])
    with pytest.warns(CollinearWarning, match=r"rank 1 of 2\): 'k' does not vary by more than rounding[,;]"):
        model = LinearRegression("y", solver=solver).fit(of_rows(("a", "k", "y"), np.column_stack([x, rows[:, 4]])))
    assert model.coef_[1] == 0
    close(model, linear_model.LinearRegression().fit(x, rows[:, 4]))


def test_fewer_rows_than_features_are_fitted_exactly(rows):
    few = rows[:3]
    with pytest.warns(CollinearWarning, match="rank 2 of 4"):
        model = LinearRegression("y").fit(of_rows(NAMES, few))
    np.testing.assert_allclose(model.predict(pd.DataFrame(few, columns=NAMES)), few[:, 4], rtol=1e-6)
    # Some of the smallest solution's digits are lost where units differ, so its size is compared, not its entries.
    oracle = linear_model.LinearRegression().fit(few[:, :4], few[:, 4])
    assert np.linalg.norm(model.coef_) == pytest.approx(np.linalg.norm(oracle.coef_), rel=1e-4)


def test_one_row_says_that_it_is_one():
    with pytest.warns(CollinearWarning, match=r"only one row: the coefficients are 0 and the intercept is its 'y'"):
        model = LinearRegression("y").fit(of_rows(("a", "y"), np.array([[3.0, 5.0]])))
    assert (list(model.coef_), model.intercept_, model.rank_) == ([0.0], 5.0, 0)


def test_a_label_that_does_not_vary(rows):
    rows[:, 4] = 3.0
    for solver in ("cholesky", "gradient"):
        model = LinearRegression("y", solver=solver).fit(of_rows(NAMES, rows, np.array([0, 0, 0, 0, 3.0])))
        assert (list(model.coef_), model.intercept_) == ([0.0] * 4, 3.0)


@pytest.mark.parametrize("count", [0.0, -2.0])
def test_without_rows_there_is_an_error(count):
    moments = Moments(("a", "y"), count, np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(NotEnoughDataError, match="no rows to learn from"):
        LinearRegression("y").fit(moments)
    with pytest.raises(NotEnoughDataError, match="not been fitted"):
        LinearRegression("y").predict(pd.DataFrame())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_moments_that_are_not_finite_are_refused(bad):
    with pytest.raises(ArithmeticOverflowError, match="the moments of 'a' are not finite"):
        LinearRegression("y").fit(Moments(("a", "y"), 2, np.ones(2), np.array([[bad, 1], [1, 1]])))
    model = LinearRegression("y").fit(of_rows(("a", "y"), np.array([[1.0, 2.0], [2.0, 3.0]])))
    with pytest.raises(ArithmeticOverflowError):
        model.score(Moments(("a", "y"), 2, np.array([1, bad]), np.ones((2, 2))))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": "ya"}, r"no feature 'ya' to use as the label(.|\n)*did you mean '[ay]', '[ay]'"),
        ({"label": "y", "features": ["bb"]}, r"no feature 'bb'(.|\n)*did you mean 'b'"),
        ({"label": "y", "features": ["a", "y"]}, r"label 'y' is among the features"),
        ({"label": "y", "features": ["a", "a"]}, r"'a' is among the features more than once"),
        ({"label": "y", "features": []}, r"no feature to predict 'y' from"),
        ({"label": "y", "features": "ab"}, r"pass a list: \['ab'\]"),
        ({"label": "y", "solver": "choleski"}, r"no solver 'choleski'(.|\n)*did you mean 'cholesky'"),
        ({"label": "y", "alpha": -1}, r"alpha=-1 is out of range"),
        ({"label": "y", "alpha": np.nan}, r"alpha=nan is out of range"),
        ({"label": "y", "tolerance": 0}, r"tolerance=0 is out of range"),
        ({"label": "y", "max_iterations": 0}, r"max_iterations=0 is out of range"),
    ],
)
def test_what_cannot_be_right_is_refused(rows, arguments, message):
    with pytest.raises(SchemaError, match=message):
        LinearRegression(**arguments).fit(of_rows(NAMES, rows))


def test_gradient_descent_ends_where_cholesky_does(rows):
    moments = of_rows(NAMES, rows)
    exact, model = LinearRegression("y").fit(moments), LinearRegression("y", solver="gradient").fit(moments)
    close(model, exact, rtol=1e-6)
    assert 0 < model.iterations_ < 500


def test_gradient_descent_goes_on_from_the_last_parameters():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20_000, 12)) @ rng.normal(size=(12, 12)) + np.arange(12)
    rows = np.column_stack([x, x @ rng.normal(size=12) + rng.normal(size=20_000)])
    names = (*(f"x{i}" for i in range(12)), "y")
    model = LinearRegression("y", solver="gradient", tolerance=1e-6).fit(of_rows(names, rows[:-20]))
    first = model.iterations_
    model.fit(of_rows(names, rows))
    warm = model.iterations_
    fresh = model.clone().fit(of_rows(names, rows))
    assert warm < fresh.iterations_ / 2
    assert model.total_iterations_ == first + warm
    np.testing.assert_allclose(model.coef_, LinearRegression("y").fit(of_rows(names, rows)).coef_, rtol=1e-3)
    model.fit(of_rows(names, rows))
    assert model.iterations_ == 0


def test_gradient_descent_says_where_it_stopped(rows):
    model = LinearRegression("y", solver="gradient", max_iterations=3)
    with pytest.warns(NotConvergedWarning, match=r'in 3 iterations; fit again .* or choose solver="cholesky"'):
        model.fit(of_rows(NAMES, rows))
    assert model.iterations_ == 3


def test_a_shift_keeps_digits_that_the_normal_equations_lose():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(2000, 3)) + 1e6
    rows = np.column_stack([x, x @ [1.0, -2.0, 0.5] + rng.normal(size=2000)])
    oracle = linear_model.LinearRegression().fit(x - 1e6, rows[:, 3])

    def error(coef):
        return np.abs(coef - oracle.coef_).max()

    names = ("a", "b", "c", "y")
    shift = np.array([1e6, 1e6, 1e6, -5e5])
    plain = of_rows(names, rows)
    raw = np.block([[np.array([[plain.count]]), plain.sums[None, :3]], [plain.sums[:3, None], plain.cofactor[:3, :3]]])
    naive = np.linalg.solve(raw, np.append(plain.sums[3], plain.cofactor[:3, 3]))[1:]
    ours, unshifted = LinearRegression("y").fit(of_rows(names, rows, shift)), LinearRegression("y").fit(plain)
    assert error(ours.coef_) < 1e-9
    assert error(naive) > 1e-6
    # Without a shift the digits are lost in the sums, whoever solves; what matters is to lose no more than that.
    assert error(unshifted.coef_) < 2 * error(naive)
    assert ours.score(of_rows(names, rows, shift)) == pytest.approx(oracle.score(x - 1e6, rows[:, 3]), rel=1e-9)


def test_digits_that_are_gone_are_told_with_the_way_to_keep_them():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(500, 1)) + 1e9
    rows = np.column_stack([x, x - 1e9 + rng.normal(size=(500, 1))])
    with pytest.warns(CollinearWarning, match="have cost digits, which shifted features keep"):
        assert LinearRegression("y").fit(of_rows(("a", "y"), rows)).coef_[0] == 0
    kept = LinearRegression("y").fit(of_rows(("a", "y"), rows, np.array([1e9, 0.0])))
    assert kept.coef_[0] == pytest.approx(1, rel=0.2)


def test_score_is_that_of_scikit_learn(rows):
    train, test = rows[:300], rows[300:]
    model = LinearRegression("y", ["a", "b"]).fit(of_rows(NAMES, train))
    frame = pd.DataFrame(test, columns=NAMES)
    expected = r2_score(test[:, 4], model.predict(frame))
    assert model.score(of_rows(NAMES, test)) == pytest.approx(expected, rel=1e-10)
    assert model.score(frame) == pytest.approx(expected, rel=1e-12)
    assert model.score(pa.Table.from_pandas(frame)) == pytest.approx(expected, rel=1e-12)
    gaps = pd.concat([frame, pd.DataFrame({"a": [None, 1.0], "b": [1.0, 1.0], "y": [1.0, None]})], ignore_index=True)
    assert model.score(gaps) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(NotEnoughDataError, match="no row of the table"):
        model.score(gaps[-2:])


def test_the_score_of_a_label_that_does_not_vary_is_that_of_scikit_learn(rows):
    model = LinearRegression("y", ["a"]).fit(of_rows(NAMES, rows))
    flat = pd.DataFrame({"a": rows[:, 0], "y": 3.0})
    assert model.score(flat) == r2_score(flat["y"], model.predict(flat)) == 0.0
    model.coef_, model.intercept_ = np.zeros(1), 3.0
    assert model.score(flat) == 1.0


WEIRD = ("unit price (€)", "a.b", "`tick`", "y y")


def weird(rows):
    return LinearRegression("y y").fit(of_rows(WEIRD, rows[:, [0, 1, 2, 4]]))


def test_predictions_for_tables_with_any_column_names(rows):
    model = weird(rows)
    frame = pd.DataFrame(rows[:5, :3], columns=WEIRD[:3], index=list("vwxyz"))[list(WEIRD[2::-1])]
    predicted = model.predict(frame.assign(other="text"))
    expected = rows[:5, :3] @ model.coef_ + model.intercept_
    assert predicted.name == "prediction"
    assert list(predicted.index) == list("vwxyz")
    np.testing.assert_allclose(predicted, expected)
    np.testing.assert_allclose(model.predict(pa.Table.from_pandas(frame)), expected)
    np.testing.assert_allclose(model.predict(pa.RecordBatch.from_pandas(frame)), expected)


def test_a_row_that_lacks_a_feature_has_no_prediction():
    model = LinearRegression("y").fit(of_rows(("a", "y"), np.array([[1.0, 2.0], [2.0, 4.0]])))
    assert model.predict(pa.table({"a": [1, None]})).to_pylist() == [2.0, None]
    assert model.predict(pd.DataFrame({"a": pd.array([None, 2], "Int64")})).isna().tolist() == [True, False]
    assert model.predict(pd.DataFrame({"a": [Decimal("1.5")]})).tolist() == [3.0]
    assert model.predict(pa.table({"a": pa.array([Decimal("1.5")])})).to_pylist() == [3.0]


def test_tables_that_do_not_fit_are_refused(rows):
    model = LinearRegression("y", ["a", "b"]).fit(of_rows(NAMES, rows))
    for table in (pd.DataFrame({"a": [1.0], "B": [1.0]}), pa.table({"a": [1.0], "B": [1.0]})):
        with pytest.raises(SchemaError, match=r"the table lacks 'b'"):
            model.predict(table)
    with pytest.raises(SchemaError, match="'a' is not one of numbers"):
        model.predict(pd.DataFrame({"a": ["x"], "b": [1.0]}))
    with pytest.raises(SchemaError, match="'a' is not one of numbers"):
        model.predict(pa.table({"a": ["x"], "b": [1.0]}))
    with pytest.raises(SchemaError, match="'a' more than once"):
        model.predict(pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "a"]))
    with pytest.raises(SchemaError, match="predict was given a list"):
        model.predict([1.0, 2.0])


def test_spark_evaluates_predictions_itself(spark, rows):
    model = weird(rows)
    frame = pd.DataFrame(rows[:40, [0, 1, 2, 4]], columns=WEIRD)
    table = spark.createDataFrame(frame)
    found = model.predict(table).toPandas()
    assert list(found.columns) == [*WEIRD, "prediction"]
    np.testing.assert_allclose(found["prediction"], model.predict(frame))
    assert model.score(table) == pytest.approx(model.score(frame), rel=1e-9)
    with pytest.raises(SchemaError, match=r"lacks 'a\.b'"):
        model.predict(spark.createDataFrame(frame.drop(columns="a.b")))


def test_a_clone_has_the_settings_and_nothing_else(rows):
    model = LinearRegression("y", ["a"], 2.0, "gradient", tolerance=1e-5, max_iterations=50).fit(of_rows(NAMES, rows))
    clone = model.clone()
    assert repr(clone) == repr(model) == "LinearRegression('y', ('a',), alpha=2.0, solver='gradient')"
    assert (clone.tolerance, clone.max_iterations) == (1e-5, 50)
    assert not hasattr(clone, "coef_")
