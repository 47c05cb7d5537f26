"""Moments and models over joins, on every data set: equal to those of the joined rows, whatever happened before."""

from __future__ import annotations

import warnings
from decimal import Decimal
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from sklearn.linear_model import LinearRegression as Sklearn
from sklearn.linear_model import Ridge

import headrace as hr
from headrace.datasets import DATASETS, Dataset, dataset, stream
from headrace.errors import BadRowsError, HeadraceError, SchemaError, UnsupportedSQLError, VariableOrderError
from headrace.factorized.planner import STRATEGIES
from headrace.learn.regression import CollinearWarning
from headrace.relation.schema import DIFF
from headrace.testing.oracle import Oracle

SCALES = {"housing": 0.02, "retailer": 0.002, "favorita": 0.002, "ssb": 0.0004, "tpch": 0.0004}
HOUSES = "SELECT size, rooms, price, rent FROM house JOIN city USING (city)"


@cache
def tables_of(name: str) -> dict[str, pa.Table]:
    return dataset(name).generate(SCALES[name])


def register(engine: hr.Engine, data: Dataset, **options: bool) -> None:
    for spec in data.tables:
        engine.table(spec.name, spec.ddl, **options)


def joined(data: Dataset, rows: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The natural join, as rows, by pandas."""
    out = rows[data.tables[0].name]
    for spec in data.tables[1:]:
        out = out.merge(rows[spec.name])
    return out


def rows_of(engine: hr.Engine) -> dict[str, pd.DataFrame]:
    return {name: table.to_pandas() for name, table in engine.tables.items()}


def design(frame: pd.DataFrame, features: tuple[str, ...] | list[str]) -> NDArray[np.float64]:
    return frame[list(features)].to_numpy(np.float64)


def assert_moments(cov: hr.Covariance, frame: pd.DataFrame) -> None:
    x = design(frame, cov.features)
    assert cov.count == len(frame)
    close(cov.sums, x.sum(axis=0), np.abs(x).sum(axis=0))
    close(cov.cofactor, x.T @ x, np.abs(x).T @ np.abs(x))


def close(actual: NDArray[np.float64], expected: NDArray[np.float64], size: NDArray[np.float64]) -> None:
    """Equal to 1e-9 of what was added up: a sum of both signs may be next to nothing itself."""
    assert actual.shape == expected.shape
    assert (np.abs(actual - expected) <= 1e-9 * size).all()


def assert_fits(model: hr.Model | hr.LinearRegression, x: pd.DataFrame, y: pd.Series, ridge: float = 0.0) -> None:
    peer = (Ridge(alpha=ridge) if ridge else Sklearn()).fit(x, y)
    scale = x.std().to_numpy(np.float64)
    off = np.abs(np.asarray(model.coef_) - peer.coef_) * scale
    assert off.max() <= 1e-6 * max(1.0, float(y.std())), dict(zip(x.columns, off, strict=True))
    predicted = model.predict(x).to_numpy()
    assert np.abs(predicted - peer.predict(x)).max() <= 1e-6 * max(1.0, float(np.abs(y).max()))


# -- every data set ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(DATASETS))
def test_moments_and_models_of_a_data_set(spark: SparkSession, tmp_path: Path, name: str) -> None:
    data = dataset(name)
    tables = tables_of(name)
    rows = sum(table.num_rows for table in tables.values())
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        register(engine, data)
        cov = engine.covariance("cov", data.join, data.features)
        given = engine.covariance("given", data.join, data.features[::2], order=data.order)
        model = engine.model("model", hr.LinearRegression(data.label), data.join)
        others = [engine.covariance(s.replace("-", "_"), data.join, data.features[:4], strategy=s) for s in STRATEGIES]
        for batch in stream(tables, max(1, rows // 3), deletes=0.15):
            engine.apply(batch)
        frame = joined(data, rows_of(engine))
        assert len(frame) > 50
        for one in (cov, given, model, *others):
            assert_moments(one, frame)
        late = engine.covariance("late", data.join, data.features)
        assert_moments(late, frame)
        assert_model(model, data, frame)
        assert str(cov.explain())
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        assert_moments(engine.views["late"], frame)
        assert_model(engine.views["model"], data, frame)


def assert_model(model: hr.Model, data: Dataset, frame: pd.DataFrame) -> None:
    """The same predictions as scikit-learn's; the same coefficients wherever the data tell the features apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollinearWarning)
        fitted = model.model
    x, y = frame[list(fitted.feature_names_)].astype(float), frame[data.label].astype(float)
    peer = Sklearn().fit(x, y)
    assert fitted.count_ == len(frame)
    assert set(fitted.feature_names_) == set(data.features) - {data.label}
    if fitted.rank_ == len(fitted.feature_names_):
        assert_fits(model, x, y)
    assert abs(model.score() - peer.score(x, y)) < 1e-6
    assert abs(model.score(frame.astype(dict.fromkeys(data.features, float))) - peer.score(x, y)) < 1e-6


@pytest.mark.parametrize("name", ["housing", "retailer"])
def test_moments_on_spark_equal_sparks_own(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The same, on executors, and with one Spark SQL aggregate over the joined rows as the oracle."""
    data = dataset(name)
    tables = tables_of(name)
    features = data.features[:3] + data.features[-3:]
    pairs = [(a, b) for i, a in enumerate(features) for b in features[i:]]
    with hr.Engine(spark, tmp_path / "s", executor="spark", buckets=3) as engine:
        register(engine, data)
        cov = engine.covariance("cov", data.join, features)
        batch = sum(table.num_rows for table in tables.values()) // 2
        for changes in islice(stream(tables, batch, deletes=0.2), 3):
            engine.apply(changes)
        oracle = Oracle(spark)
        oracle.set_rows({name: table.to_arrow() for name, table in engine.tables.items()})
        asked = ["COUNT(*)", *(f"SUM(DOUBLE({f}))" for f in features), *(f"SUM(DOUBLE({a}) * {b})" for a, b in pairs)]
        from_ = data.join[data.join.index(" FROM ") :]
        answer = oracle.answer("SELECT " + ", ".join(f"{e} AS c{i}" for i, e in enumerate(asked)) + from_)
        count, *rest = (column[0].as_py() for column in answer.columns)
        assert cov.count == count > 0
        np.testing.assert_allclose(cov.sums, rest[: len(features)], rtol=1e-9)
        got = [cov.cofactor[features.index(a), features.index(b)] for a, b in pairs]
        np.testing.assert_allclose(got, rest[len(features) :], rtol=1e-9)


# -- a small join of our own ------------------------------------------------------------------------------------------


def houses(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    size, rooms = rng.integers(20, 200, n).astype(float), rng.integers(1, 8, n)
    city = rng.choice(["ath", "ber", "rom", "zrh"], n)
    rent = {"ath": 9.5, "ber": 14.0, "rom": 12.25, "zrh": 31.0}
    price = 3.0 * size + 11.0 * rooms + np.array([rent[c] for c in city]) * 2 + rng.normal(0, 5, n)
    return pa.table(
        {"city": city, "size": size, "rooms": pa.array(rooms, pa.int32()), "price": price},
    )


CITIES = pa.table({"city": ["ath", "ber", "rom", "zrh"], "rent": [9.5, 14.0, 12.25, 31.0]})


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.array([diff] * rows.num_rows, pa.int64()))


def housed(spark: SparkSession, path: Path, **options: object) -> hr.Engine:
    engine = hr.Engine(spark, path / "s", buckets=3, **({"executor": "inline"} | options))  # type: ignore[arg-type]
    engine.table("house", "city STRING, size DOUBLE, rooms INT, price DOUBLE")
    engine.table("city", "city STRING, rent DOUBLE")
    return engine


def house_frame(engine: hr.Engine) -> pd.DataFrame:
    rows = rows_of(engine)
    return rows["house"].dropna().merge(rows["city"].dropna())


def test_models_follow_insertions_and_deletions(spark: SparkSession, tmp_path: Path) -> None:
    rows = houses(300)
    with housed(spark, tmp_path) as engine:
        plain = engine.model("plain", hr.LinearRegression("price"), HOUSES)
        ridge = engine.model("ridge", hr.LinearRegression("price", ["size", "rooms", "rent"], alpha=10.0), HOUSES)
        slow = engine.model("slow", hr.LinearRegression("price", solver="gradient", tolerance=1e-12), HOUSES)
        engine.apply({"house": rows, "city": CITIES})
        for changes in (
            {},
            {"house": houses(100, seed=1)},
            {"house": with_diff(rows.slice(0, 250), -1)},
            {"city": pa.table({"city": ["rom"], "rent": [12.25], DIFF: [-1]})},
        ):
            engine.apply(changes)
            frame = house_frame(engine)
            for model, alpha in ((plain, 0.0), (ridge, 10.0), (slow, 0.0)):
                assert_fits(model, frame[list(model.feature_names_)], frame["price"], alpha)
            assert plain.model.count_ == len(frame)
        assert plain.to_pandas()["count"].tolist() == [len(frame)]
        assert str(plain.explain())


def test_a_model_is_fitted_only_when_something_changed(spark: SparkSession, tmp_path: Path) -> None:
    with housed(spark, tmp_path) as engine:
        model = engine.model("m", hr.LinearRegression("price"), HOUSES)
        engine.apply({"house": houses(100), "city": CITIES})
        first = model.coef_
        assert model.coef_ is first
        assert model.model is model.model
        engine.table("other", "x INT")
        engine.apply({"other": pa.table({"x": pa.array([1], pa.int32())})})
        assert model.coef_ is first  # a step that is no business of the model's
        engine.apply({"house": houses(10, seed=3)})
        second = model.coef_
        assert second is not first
        assert not np.array_equal(first, second)


def test_gradient_descent_starts_from_the_last_parameters(spark: SparkSession, tmp_path: Path) -> None:
    with housed(spark, tmp_path) as engine:
        model = engine.model("m", hr.LinearRegression("price", solver="gradient"), HOUSES)
        engine.apply({"house": houses(3000), "city": CITIES})
        cold = model.iterations_
        assert cold > 0
        engine.apply({"house": houses(1, seed=4)})
        assert model.iterations_ < cold
        frame = house_frame(engine)
        assert_fits(model, frame[list(model.feature_names_)], frame["price"])


def test_groups_have_moments_and_models_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT city, size, rooms, price FROM house JOIN city USING (city) GROUP BY city"
    rows = houses(200)
    with housed(spark, tmp_path) as engine:
        cov = engine.covariance("cov", sql, ["size", "price", "rooms"])
        model = engine.model("m", hr.LinearRegression("price"), sql)
        assert (cov.rows, cov.count.shape, cov.sums.shape, cov.cofactor.shape) == (0, (0,), (0, 3), (0, 3, 3))
        assert model.models == {}
        engine.apply({"house": rows, "city": CITIES})
        gone = rows.filter(pa.compute.equal(rows["city"], "ber"))
        engine.apply({"house": with_diff(gone, -1)})  # a whole group
        frame = house_frame(engine)
        assert cov.groups == ("city",)
        assert sorted(cov.keys.column("city").to_pylist()) == ["ath", "rom", "zrh"]
        assert cov.rows == 3
        assert set(model.models) == {("ath",), ("rom",), ("zrh",)}
        for i, (key, moments) in enumerate(cov.by_group()):
            part = frame[frame.city == key["city"]]
            x = design(part, cov.features)
            assert moments.count == cov.count[i] == len(part)
            close(cov.sums[i], x.sum(axis=0), x.sum(axis=0))
            close(cov.cofactor[i], x.T @ x, x.T @ x)
            one = model.models[key["city"],]
            assert_fits(one, part[list(one.feature_names_)], part["price"])
        x = design(frame, cov.features)
        close(cov.moments().cofactor, x.T @ x, x.T @ x)
        assert model.to_arrow().num_rows == 3
        asked = pd.concat([frame.head(30), frame.head(1).assign(city="nowhere")], ignore_index=True)
        predicted = model.predict(asked)
        for city, part in asked.groupby("city"):
            own = model.models[city,].predict(part) if city != "nowhere" else pd.Series(np.nan, part.index)
            np.testing.assert_allclose(predicted[part.index], own)
        np.testing.assert_allclose(model.predict(pa.Table.from_pandas(asked)).to_numpy(False), predicted)
        by_spark = model.predict(spark.createDataFrame(asked.assign(row=asked.index))).toPandas().sort_values("row")
        np.testing.assert_allclose(by_spark["prediction"], predicted)
        assert list(by_spark.columns) == [*asked.columns, "row", "prediction"]
        with pytest.raises(SchemaError, match="lacks 'city'"):
            model.predict(asked.drop(columns="city"))
        with pytest.raises(SchemaError, match=r"one model a group.*\n.*\.models"):
            _ = model.coef_


def test_groups_by_several_columns_with_nulls(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT kind, rent, size, price FROM house JOIN city USING (city) GROUP BY kind, rent"
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("house", "city STRING, size DOUBLE, price DOUBLE, kind STRING")
        engine.table("city", "city STRING, rent DECIMAL(6, 2)")
        cov = engine.covariance("cov", sql, ["size", "price"])
        rows = houses(60).drop_columns(["rooms"])
        kinds = [[None, "", "flat", "hut"][i % 4] for i in range(60)]
        rents = pa.array([Decimal(9), Decimal(14), Decimal(12), None], pa.decimal128(6, 2))
        engine.apply(
            {"house": rows.append_column("kind", pa.array(kinds)), "city": CITIES.set_column(1, "rent", rents)}
        )
        tables = {name: table.to_arrow().to_pylist() for name, table in engine.tables.items()}
        expected: dict[tuple[object, ...], int] = {}
        for h in tables["house"]:
            for c in tables["city"]:
                if h["city"] == c["city"]:
                    expected[h["kind"], c["rent"]] = expected.get((h["kind"], c["rent"]), 0) + 1
        got = {(key["kind"], key["rent"]): moments.count for key, moments in cov.by_group()}
        assert got == expected
        assert (None, None) in got


def test_other_labels_and_subsets_come_from_the_same_covariance(spark: SparkSession, tmp_path: Path) -> None:
    with housed(spark, tmp_path) as engine:
        cov = engine.covariance("cov", HOUSES)
        assert cov.features == ("size", "rooms", "price", "rent")  # all numbers
        engine.apply({"house": houses(200), "city": CITIES})
        frame = house_frame(engine)
        for label, features in (
            ("price", ["size"]),
            ("rent", ["rooms", "price"]),
            ("size", ["rent", "rooms", "price"]),
        ):
            model = hr.LinearRegression(label).fit(cov.moments([*features, label]))
            assert_fits(model, frame[features], frame[label])
        with pytest.raises(SchemaError, match="prize") as caught:
            cov.moments(["prize"])
        assert "price" in str(caught.value)


def test_features_that_are_joined_on(spark: SparkSession, tmp_path: Path) -> None:
    """They enter where they are summed away, in every strategy, whatever their type."""
    rng = np.random.default_rng(0)
    ones = rng.integers(0, 2, 40).tolist()
    kinds = {
        "INT": pa.array(ones, pa.int32()),
        "DECIMAL(8, 2)": pa.array([Decimal(one) for one in ones], pa.decimal128(8, 2)),
        "DECIMAL(30, 2)": pa.array([Decimal(one) for one in ones], pa.decimal128(30, 2)),
        "BOOLEAN": pa.array([one == 1 for one in ones]),
        "DOUBLE": pa.array(ones, pa.float64()),
    }
    for kind, values in kinds.items():
        with hr.Engine(spark, tmp_path / kind, executor="inline", buckets=3) as engine:
            engine.table("r", f"a {kind}, b DOUBLE")
            engine.table("s", f"a {kind}, c DOUBLE")
            sql = "SELECT a, b, c FROM r JOIN s USING (a)"
            views = [engine.covariance(s.replace("-", "_"), sql, strategy=s) for s in STRATEGIES]
            numbers = rng.normal(50, 1, 40)
            engine.apply({"r": pa.table({"a": values, "b": numbers}), "s": pa.table({"a": values, "c": numbers})})
            frame = engine.tables["r"].to_pandas().merge(engine.tables["s"].to_pandas())
            for view in views:
                assert_moments(view, frame.astype(float))


def test_one_column_under_two_names_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Columns that are equal in every row are one variable of the join: a payload has it once."""
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("r", "a INT, x DOUBLE")
        engine.table("s", "a INT, y DOUBLE")
        for over in (
            "SELECT r.a AS one, s.a AS two, x, y FROM r JOIN s ON r.a = s.a",
            "SELECT a AS one, a AS two, x FROM r",
            "SELECT r.a AS one, s.a AS two, x, y FROM r JOIN s ON r.a = s.a GROUP BY one",
        ):
            with pytest.raises(SchemaError, match="'two' equals 'one' in every row"):
                engine.covariance("cov", over)
        cov = engine.covariance("cov", "SELECT r.a AS one, s.a AS two, x FROM r JOIN s ON r.a = s.a", ["two", "x"])
        a = pa.array([1, 2, 2, 3], pa.int32())
        engine.apply({"r": pa.table({"a": a, "x": [1.0, 2.0, 3.0, 4.0]}), "s": pa.table({"a": a, "y": [0.5] * 4})})
        rows = rows_of(engine)
        assert_moments(cov, rows["r"].merge(rows["s"]).rename(columns={"a": "two"}))


def test_one_table_is_a_join_too(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT size, rooms, price * 2 AS twice FROM house WHERE rooms > 2"
    rows = houses(100)
    with housed(spark, tmp_path) as engine:
        views = [engine.covariance(s.replace("-", "_"), sql, strategy=s) for s in STRATEGIES]
        by = engine.covariance("by", "SELECT city, size, price FROM house GROUP BY city", ["size", "price"])
        engine.apply({"house": rows})
        engine.apply({"house": with_diff(rows.slice(0, 30), -1)})
    with housed(spark, tmp_path) as engine:  # opened again
        frame = engine.tables["house"].to_pandas()
        assert engine.views["by"].count.sum() == len(frame) == 70
        frame = frame[frame.rooms > 2].assign(twice=lambda f: f.price * 2)
        for view in views:
            assert_moments(engine.views[view.name], frame)
        engine.apply({"house": with_diff(rows.slice(30), -1)})
        for view in views:
            again = engine.views[view.name]
            assert again.count == 0
            assert not again.sums.any()
            assert not again.cofactor.any()
        assert engine.views[by.name].rows == 0


def test_digits_survive_means_that_are_large(spark: SparkSession, tmp_path: Path) -> None:
    """A shift near the mean is found in the first rows, and is there after a restart."""
    rng = np.random.default_rng(2)
    n = 400
    moment = 1.7e9 + rng.normal(0, 10, n)
    price = 0.5 * (moment - 1.7e9) + rng.normal(0, 0.1, n)
    rows = pa.table({"city": rng.choice(["ath", "rom"], n), "size": moment, "rooms": [1] * n, "price": price})
    rows = rows.set_column(2, "rooms", pa.array([1] * n, pa.int32()))
    sql = "SELECT size, price FROM house JOIN city USING (city)"
    with housed(spark, tmp_path) as engine:
        engine.model("m", hr.LinearRegression("price"), sql)
        engine.apply({"house": rows.slice(0, 100), "city": CITIES})
    with housed(spark, tmp_path) as engine:
        engine.apply({"house": rows.slice(100)})
        engine.model("late", hr.LinearRegression("price"), sql)
        frame = house_frame(engine)
        x = frame[["size"]] - 1.7e9
        peer = Sklearn().fit(x, frame["price"])
        for name in ("m", "late"):
            assert abs(engine.views[name].coef_[0] - peer.coef_[0]) < 1e-6


# -- tables of other kinds --------------------------------------------------------------------------------------------


def test_tables_whose_rows_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    data = dataset("retailer")
    tables = tables_of("retailer")
    batches = list(stream(tables, sum(t.num_rows for t in tables.values()) // 3, deletes=0.1))
    with hr.Engine(spark, tmp_path / "kept", executor="inline", buckets=3) as engine:
        register(engine, data)
        cov = engine.covariance("cov", data.join, data.features)
        for batch in batches:
            engine.apply(batch)
        expected = cov.count, cov.sums, cov.cofactor
    with hr.Engine(spark, tmp_path / "passed", executor="inline", buckets=3) as engine:
        register(engine, data, keep_rows=False)
        cov = engine.covariance("cov", data.join, data.features)
        for batch in batches:
            engine.apply(batch)
        assert cov.count == expected[0] > 0
        np.testing.assert_allclose(cov.sums, expected[1], rtol=1e-12)
        np.testing.assert_allclose(cov.cofactor, expected[2], rtol=1e-12)
        with pytest.raises(SchemaError, match=r"were not kept"):
            engine.covariance("late", data.join)


def test_static_tables(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("house", "city STRING, size DOUBLE, rooms INT, price DOUBLE")
        engine.table("city", "city STRING, rent DOUBLE", static=True)
        engine.apply({"city": CITIES})  # no view relies on it yet
        cov = engine.covariance("cov", HOUSES)
        engine.apply({"house": houses(50)})
        assert_moments(cov, house_frame(engine))
        with pytest.raises(SchemaError, match=r"static, and cov relies on that"):
            engine.apply({"city": with_diff(CITIES, -1)})
        assert_moments(cov, house_frame(engine))
        kept = [view.name for view in cov.planned.factorization.plan.views if view.kept]
    with housed(spark, tmp_path / "free") as engine:
        free = engine.covariance("cov", HOUSES)
        assert len(kept) < sum(view.kept for view in free.planned.factorization.plan.views)


# -- rows that lack something -----------------------------------------------------------------------------------------


def test_rows_without_a_feature_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = houses(80)
    holes = pa.array([None if i % 7 == 0 else float(i) for i in range(80)])
    rows = rows.set_column(1, "size", holes)
    cities = pa.table({"city": ["ath", "ber", "rom", None], "rent": [9.5, None, 12.25, 31.0]})
    with housed(spark, tmp_path) as engine:
        views = [engine.covariance(s.replace("-", "_"), HOUSES, strategy=s) for s in STRATEGIES]
        some = engine.covariance("some", HOUSES, ["price", "rooms"])
        engine.apply({"house": rows, "city": cities})
        for changes in ({}, {"house": with_diff(rows.slice(0, 40), -1)}):
            engine.apply(changes)
            frame = house_frame(engine)
            for view in views:
                assert_moments(view, frame)
            # What is no feature may be NULL.
            tables = rows_of(engine)
            assert some.count == len(tables["house"].merge(tables["city"].dropna(subset="city"), on="city"))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_feature_that_is_no_number_is_a_bad_row(
    spark: SparkSession, tmp_path: Path, bad: float, strategy: str
) -> None:
    rows = houses(20)
    poisoned = rows.set_column(1, "size", pa.array([bad, *rows["size"].to_pylist()[1:]]))
    with housed(spark, tmp_path) as engine:
        cov = engine.covariance("cov", HOUSES, strategy=strategy)
        with pytest.raises(BadRowsError, match="size"):
            engine.apply({"house": poisoned, "city": CITIES})
        assert (cov.count, engine.tables["house"].rows) == (0, 0)
        step = engine.apply({"house": poisoned, "city": CITIES}, on_bad_rows="quarantine")
        assert step.quarantined == {"house": 1}
        assert_moments(cov, house_frame(engine))
        assert engine.quarantine("house").num_rows == 1
        assert "size" in engine.quarantine("house")["__reason"][0].as_py()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_feature_that_is_joined_on_and_no_number_is_a_bad_row(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("r", "a DOUBLE, b DOUBLE")
        engine.table("s", "a DOUBLE, c DOUBLE")
        engine.covariance("cov", "SELECT a, b, c FROM r JOIN s USING (a)", strategy=strategy)
        with pytest.raises(BadRowsError, match="NaN"):
            engine.apply(
                {
                    "r": pa.table({"a": [float("nan"), 1.0], "b": [1.0, 2.0]}),
                    "s": pa.table({"a": [float("nan"), 1.0], "c": [1.0, 2.0]}),
                }
            )


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with housed(spark, tmp_path) as engine:

        def refused(error: type[HeadraceError], *said: str, **asked: object) -> None:
            over = str(asked.pop("over", HOUSES))
            model = asked.pop("model", None)
            create = engine.covariance if model is None else partial(engine.model, model=model)
            with pytest.raises(error) as caught:
                create("x", over=over, **asked)  # type: ignore[arg-type]
            for part in said:
                assert part in str(caught.value), str(caught.value)
            assert "x" not in engine.views

        refused(SchemaError, "no feature 'prise'", "'price'", features=["prise", "size"])
        refused(SchemaError, "no label 'prize'", "'price'", model=hr.LinearRegression("prize"))
        refused(SchemaError, "no feature 'siz'", "'size'", model=hr.LinearRegression("price", ["siz"]))
        text = "SELECT city, size, rent FROM house JOIN city USING (city)"
        refused(SchemaError, "'city' is categorical", over=text, model=hr.LinearRegression("city"))
        refused(SchemaError, "twice", features=["size", "size"])
        refused(SchemaError, "at least one", features=[])
        refused(SchemaError, "grouped by", over=f"{HOUSES} GROUP BY rooms", features=["rooms", "size"])
        refused(SchemaError, "GROUP BY column 'town'", over=f"{HOUSES} GROUP BY town")
        refused(SchemaError, "strategy='magic'", "'factorized'", strategy="magic")
        refused(SchemaError, "partition='town'", "city", partition="town")
        refused(VariableOrderError, "lacks variable city", order="size")
        refused(VariableOrderError, "town", "no relation", order="town\n  city")
        refused(VariableOrderError, "different branches", order="city\n  size\n  rooms")
        refused(SchemaError, "no variable order", strategy="recursive", order="city")
        refused(UnsupportedSQLError, "CROSS JOIN", over="SELECT size, rent FROM house, city")
        refused(
            UnsupportedSQLError, "one table", over="SELECT size * rent AS both, price FROM house JOIN city USING (city)"
        )
        with pytest.raises(SchemaError, match="reads one table"):
            engine.view("v", "SELECT city, COUNT(*) FROM house GROUP BY city", strategy="recursive")
        with pytest.raises(SchemaError, match="partition='size'"):
            engine.view("v", "SELECT COUNT(*) AS n, SUM(size) AS s FROM house JOIN city USING (city)", partition="size")
        cov = engine.covariance("cov", "SELECT size, rent FROM house CROSS JOIN city")
        engine.apply({"house": houses(20), "city": CITIES})
        rows = rows_of(engine)
        assert_moments(cov, rows["house"].drop(columns="city").merge(rows["city"], how="cross"))
        with pytest.raises(SchemaError, match="another definition"):
            engine.covariance("cov", HOUSES)
        assert engine.covariance("cov", "SELECT size, rent FROM house CROSS JOIN city") is cov
        engine.drop("cov")
        with pytest.raises(SchemaError, match="dropped"):
            _ = cov.count


def test_nothing_to_learn_from(spark: SparkSession, tmp_path: Path) -> None:
    with housed(spark, tmp_path) as engine:
        model = engine.model("m", hr.LinearRegression("price"), HOUSES)
        assert (model.count, model.sums.tolist()) == (0, [0.0] * 4)
        with pytest.raises(HeadraceError, match="no rows"):
            _ = model.coef_
        engine.apply({"house": houses(50)})  # no city: nothing joins
        with pytest.raises(HeadraceError, match="no rows"):
            _ = model.coef_
        engine.apply({"city": CITIES})
        assert len(model.coef_) == 3
