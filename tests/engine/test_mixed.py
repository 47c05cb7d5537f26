"""Moments and models with categorical features: equal to scikit-learn's on the one-hot encoded rows of the join.

The oracle is pandas for the join and scikit-learn for the rest: no code of the engine takes part.
"""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sklearn.linear_model import LinearRegression as Sklearn
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

import headrace as hr
from headrace.errors import SchemaError
from headrace.learn.regression import CollinearWarning
from headrace.relation.schema import DIFF

OVER = "SELECT price, area, kind, heating, city, region FROM house NATURAL JOIN place"
CATEGORIES = ("kind", "heating", "city", "region")
NUMBERS = ("price", "area")
KINDS = np.array(["flat", "house", "hut", "castle", "ümlaut"])


def homes(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    kind = rng.integers(0, 5, rows)
    frame = pd.DataFrame({"id": range(rows), "postcode": rng.integers(0, 12, rows), "kind": KINDS[kind]})
    frame["heating"], frame["area"] = rng.integers(0, 3, rows), rng.gamma(6, 18, rows).round(1)
    frame["price"] = (2 * frame["area"] + 30 * kind - 12 * frame["heating"] + rng.normal(0, 5, rows)).round(2)
    return frame


def places() -> pd.DataFrame:
    code = np.arange(10)  # two postcodes have no place
    cities = np.array(["Cork", "Bergen", "Graz"])
    return pd.DataFrame({"postcode": code, "city": cities[code % 3], "region": np.where(code % 2, "n", "s")})


def register(engine: hr.Engine) -> None:
    engine.table("house", "id BIGINT, postcode INT, kind STRING, heating INT, area DOUBLE, price DOUBLE", key="id")
    engine.table("place", "postcode INT, city STRING, region STRING", key="postcode")


def joined(engine: hr.Engine) -> pd.DataFrame:
    return engine.tables["house"].to_pandas().merge(engine.tables["place"].to_pandas())


def assert_moments(handle: hr.Covariance, frame: pd.DataFrame) -> None:
    mixed = handle.mixed_moments()
    assert mixed.count == handle.count == len(frame)
    assert set(mixed.categorical) == set(handle.categorical) == set(CATEGORIES)
    numbers = list(mixed.continuous.features)
    for i, a in enumerate(CATEGORIES):
        grouped = frame.groupby(a)
        assert mixed.levels(a).to_pylist() == sorted(grouped.groups)
        assert mixed.level_counts(a).tolist() == grouped.size().tolist()
        np.testing.assert_allclose(mixed.level_sums(a), grouped[numbers].sum().to_numpy(), rtol=1e-9, atol=1e-6)
        for b in CATEGORIES[i + 1 :]:
            table = pd.crosstab(frame[a], frame[b]).to_numpy()
            assert mixed.pair_table(a, b).tolist() == table.tolist()
            assert (mixed.pair_counts(a, b)[2] > 0).all()
            assert mixed.pair_table(b, a).tolist() == table.T.tolist()


def assert_fits(model: hr.Model, frame: pd.DataFrame, alpha: float = 0.0, drop: str | None = "first") -> None:
    encoder = OneHotEncoder(drop=drop, sparse_output=False).fit(frame[list(CATEGORIES)])
    x = np.column_stack([frame[["area"]], encoder.transform(frame[list(CATEGORIES)])])
    peer = (Ridge(alpha=alpha) if alpha else Sklearn()).fit(x, frame["price"])
    expected = {"area": peer.coef_[0]}
    names = [name.replace("_", "=", 1) for name in encoder.get_feature_names_out()]
    expected |= dict(zip(names, peer.coef_[1:], strict=True))
    got = dict(zip(model.feature_names_, model.coef_, strict=True))
    assert got.keys() == expected.keys()
    for name, coefficient in expected.items():
        assert abs(got[name] - coefficient) < 1e-6, name
    assert abs(model.intercept_ - peer.intercept_) < 1e-6
    assert abs(model.score() - peer.score(x, frame["price"])) < 1e-9
    np.testing.assert_allclose(model.predict(frame), peer.predict(x), atol=1e-6)


def steps(rng: np.random.Generator, house: pd.DataFrame) -> list[dict[str, pd.DataFrame]]:
    """Inserts, then deletes among inserts: all huts go, a castle comes only later, and a place moves."""
    late = house["kind"] == "castle"
    first = house[~late]
    deleted = pd.concat([first[first["kind"] == "hut"], first[first["kind"] != "hut"].sample(20, random_state=1)])
    moved = pd.DataFrame({"postcode": [3, 3], "city": ["Cork", "Åbo"], "region": ["n", "s"], DIFF: [-1, 1]})
    return [
        {"place": places(), "house": first[:100]},
        {"house": first[100:]},
        {"house": pd.concat([house[late].assign(**{DIFF: 1}), deleted.assign(**{DIFF: -1})])},
        {"place": moved},
    ]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_models_follow_inserts_and_deletes_and_restarts(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    rng = np.random.default_rng(3)
    house = homes(rng, 400)
    with hr.Engine(spark, tmp_path / "s", executor=executor, buckets=3) as engine:
        register(engine)
        cov = engine.covariance("cov", OVER, categorical=["heating"])
        assert (cov.features, cov.categorical) == (NUMBERS, CATEGORIES)
        model = engine.model("model", hr.LinearRegression("price"), OVER, categorical=["heating"])
        ridge = engine.model("ridge", hr.LinearRegression("price", alpha=2.5, drop=None), OVER, categorical=["heating"])
        assert cov.mixed_moments().count == 0
        assert cov.mixed_moments().levels("kind").to_pylist() == []
        for step in steps(rng, house):
            engine.apply(step)
            frame = joined(engine)
            assert_moments(cov, frame)
            assert_fits(model, frame)
            assert_fits(ridge, frame, alpha=2.5, drop=None)
        assert "hut" not in cov.mixed_moments().levels("kind").to_pylist()
        late = engine.covariance("late", OVER, categorical=["heating"])  # filled from the tables
        assert_moments(late, frame)
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        cov = engine.views["cov"]
        assert_moments(cov, frame)
        assert_fits(engine.views["model"], frame)
        engine.apply({"house": house[house["kind"] == "hut"].assign(id=lambda rows: rows["id"] + 1000)})
        frame = joined(engine)
        assert_moments(cov, frame)
        assert_fits(engine.views["model"], frame)
        engine.apply({"house": engine.tables["house"].to_pandas().assign(**{DIFF: -1})})
        assert cov.mixed_moments().count == 0
        assert cov.mixed_moments().levels("city").to_pylist() == []
        assert not len(cov.mixed_moments().pair_counts("kind", "city")[2])


def test_categories_of_every_type_of_one_table(spark: SparkSession, tmp_path: Path) -> None:
    wide = [Decimal(f"{n}.{'0' * 19}1") for n in (5, -3, 7)]
    rng = np.random.default_rng(1)
    at = rng.integers(0, 3, 60)
    values: dict[str, list[Any]] = {
        "s": ["", "b", "a\u0000c"],
        "d": [datetime.date(1969, 1, 2), datetime.date(2024, 2, 29), datetime.date(1, 1, 1)],
        "t": [datetime.datetime(2024, 1, n, 5) for n in (3, 1, 2)],
        "b": [True, False, True],
        "i": [-5, 2**60, 3],
        "x": [0.5, -0.25, 1e300],
        "n": [Decimal("1.50"), Decimal("-2.25"), Decimal("0.00")],
        "w": wide,
    }
    ddl = "id INT, s STRING, d DATE, t TIMESTAMP_NTZ, b BOOLEAN, i BIGINT, x DOUBLE, n DECIMAL(8, 2), w DECIMAL(30, 20)"
    rows = [{"id": k, "y": float(k % 7)} | {name: own[a] for name, own in values.items()} for k, a in enumerate(at)]
    types = {"s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us"), "b": pa.bool_(), "i": pa.int64()}
    types |= {"x": pa.float64(), "n": pa.decimal128(8, 2), "w": pa.decimal128(30, 20)}
    schema = pa.schema([("id", pa.int32()), *types.items(), ("y", pa.float64())])
    table = pa.Table.from_pylist(rows, schema)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2) as engine:
        engine.table("t", f"{ddl}, y DOUBLE", key="id")
        cov = engine.covariance("cov", "SELECT * FROM t", ["y", *values], categorical=["b", "i", "x", "n", "w"])
        engine.apply({"t": table})
        mixed = cov.mixed_moments()
        assert mixed.categorical == tuple(values)
        for name in values:
            grouped = {}
            for row in rows:
                grouped.setdefault(row[name], []).append(row["y"])
            assert mixed.levels(name).to_pylist() == sorted(grouped), name
            assert mixed.level_counts(name).tolist() == [len(grouped[key]) for key in sorted(grouped)]
            assert mixed.level_sums(name)[:, 0].tolist() == [sum(grouped[key]) for key in sorted(grouped)]
            assert mixed.level_counts(name).sum() == mixed.pair_counts(name, "s")[2].sum() == 60
        engine.apply({"t": table.append_column(DIFF, pa.array([-1] * 60))})
        assert all(len(cov.mixed_moments().levels(name)) == 0 for name in values)
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        assert engine.views["cov"].mixed_moments().count == 0


def test_levels_by_group(spark: SparkSession, tmp_path: Path) -> None:
    house = homes(np.random.default_rng(4), 300)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        register(engine)
        over = "SELECT city, region, price, area, kind FROM house NATURAL JOIN place GROUP BY city, region"
        cov = engine.covariance("cov", over)
        model = engine.model("model", hr.LinearRegression("price"), over)
        assert cov.categorical == ("kind",)
        engine.apply({"place": places(), "house": house})
        engine.apply({"house": house[house["kind"] == "hut"].assign(**{DIFF: -1})})
        frame = joined(engine)
        groups = dict(list(frame.groupby(["city", "region"])))
        found = cov.mixed_by_group()
        assert {tuple(key.values()) for key, _ in found} == groups.keys()
        for key, mixed in found:
            rows = groups[tuple(key.values())]
            counts = rows.groupby("kind").size()
            assert mixed.levels("kind").to_pylist() == list(counts.index)
            assert mixed.level_counts("kind").tolist() == counts.tolist()
            fitted = model.models[tuple(key.values())]
            x = pd.get_dummies(rows[["area", "kind"]], drop_first=True).astype(float)
            peer = Sklearn().fit(x, rows["price"])
            np.testing.assert_allclose(fitted.coef_, peer.coef_, atol=1e-6)
            np.testing.assert_allclose(model.predict(rows), peer.predict(x), atol=1e-6)
        assert cov.mixed_moments().level_counts("kind").tolist() == frame.groupby("kind").size().tolist()
        assert model.to_arrow().num_rows == len(groups)
        on_spark = model.predict(spark.createDataFrame(frame)).toPandas().sort_values("id")
        np.testing.assert_allclose(on_spark["prediction"], model.predict(frame.sort_values("id")), atol=1e-9)


def test_predictions_for_levels_never_seen(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2) as engine:
        register(engine)
        over = "SELECT price, area, kind FROM house"
        model = engine.model("model", hr.LinearRegression("price"), over)
        lenient = engine.model("lenient", hr.LinearRegression("price", drop={"kind": "hut"}, unknown="reference"), over)
        engine.apply({"house": homes(np.random.default_rng(4), 200)})
        assert model.model.reference_ == {"kind": "castle"}
        assert lenient.model.reference_ == {"kind": "hut"}
        new = pd.DataFrame({"area": [50.0, 50.0, 50.0, None], "kind": ["hut", "igloo", None, "flat"]})
        assert model.predict(new).isna().tolist() == [False, True, True, True]
        got = lenient.predict(new)
        assert got.isna().tolist() == [False, False, True, True]
        assert got[0] == got[1]
        assert abs(model.predict(new)[0] - got[0]) < 1e-9  # the reference changes no prediction
        arrow = model.predict(pa.Table.from_pandas(new))
        assert arrow.null_count == 3
        for handle in (model, lenient):
            frame = spark.createDataFrame(new.astype(object).where(new.notna(), None), "area double, kind string")
            on_spark = handle.predict(frame).toPandas()["prediction"]
            np.testing.assert_allclose(on_spark, handle.predict(new), atol=1e-9)
        text = pd.DataFrame({"area": [50.0], "kind": [3]})
        assert model.predict(text).isna().all()


def test_what_is_said_of_categories_and_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2) as engine:
        register(engine)
        cov = engine.covariance("cov", OVER)
        assert repr(cov) == "Covariance('cov', 3 features, by level of kind, city, region)"
        said = str(cov.explain())
        assert "count and 3 sums by level of kind, city, region" in said
        assert "V_place[postcode, city, region]" in said
        model = engine.model("model", hr.LinearRegression("price", ["area", "kind"]), OVER)
        assert "by level of kind" in repr(model)
        assert engine.covariance("numbers", OVER, ["price", "area"]).categorical == ()
        for made, message in [
            (lambda: engine.model("m", hr.LinearRegression("kind"), OVER), "'kind' is categorical"),
            (lambda: engine.covariance("m", OVER, ["price"], categorical=["heating"]), "not among the features"),
            (lambda: engine.covariance("m", OVER, categorical=["heatin"]), "no feature 'heatin'"),
            (lambda: engine.covariance("m", OVER, categorical="heating"), "categorical='heating'"),
            (lambda: engine.covariance("m", OVER, refresh="full"), "are categorical: kind, city, region"),
        ]:
            with pytest.raises(SchemaError, match=message):
                made()
        wrong = engine.model("wrong", hr.LinearRegression("price", drop={"area": 3}), OVER)
        with pytest.raises(SchemaError, match="no categorical feature"):
            _ = wrong.coef_


def test_categories_that_determine_one_another(spark: SparkSession, tmp_path: Path) -> None:
    """A postcode has one city: the columns depend on each other, and the smallest coefficients are scikit-learn's."""
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2) as engine:
        register(engine)
        over = "SELECT price, area, postcode, city FROM house NATURAL JOIN place"
        model = engine.model("model", hr.LinearRegression("price"), over, categorical=["postcode"])
        engine.apply({"place": places(), "house": homes(np.random.default_rng(4), 300)})
        frame = joined(engine)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = model.model
        assert [w.category for w in caught] == [CollinearWarning]
        x = pd.get_dummies(frame[["area", "postcode", "city"]], columns=["postcode", "city"], drop_first=True)
        peer = Sklearn().fit(x.astype(float), frame["price"])
        np.testing.assert_allclose(fitted.coef_, peer.coef_, atol=1e-6)
        np.testing.assert_allclose(model.predict(frame), peer.predict(x.astype(float)), atol=1e-6)


def test_changes_that_wait_for_a_goal(spark: SparkSession, tmp_path: Path) -> None:
    """Values of texts wait beside the rows that bring them, across a restart too."""
    rng = np.random.default_rng(6)
    house = homes(rng, 200)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        register(engine)
        cov = engine.covariance("cov", OVER, categorical=["heating"], goal=hr.Manual())
        engine.apply({"place": places(), "house": house[:120]})
        assert cov.mixed_moments().count == 0
        cov.refresh()
        assert_moments(cov, joined(engine))
        engine.apply({"house": house[:50].assign(**{DIFF: -1})})
        assert cov.mixed_moments().count > len(joined(engine))
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        cov = engine.views["cov"]
        engine.apply({"house": house[120:]})
        cov.refresh()
        assert_moments(cov, joined(engine))
