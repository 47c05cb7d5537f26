"""Models that an engine keeps, of every kind: equal to scikit-learn on the joined rows after inserts and deletes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from sklearn import decomposition, linear_model
from sklearn.preprocessing import PolynomialFeatures
from tests.seeds import seeds

import headrace as hr
from headrace.errors import HeadraceError, SchemaError, StorageError

OVER = "SELECT city, size, rooms, price, rent, salary FROM house JOIN place USING (city)"
NUMBERS = ["size", "rooms", "rent", "salary"]


def tables(engine: hr.Engine) -> None:
    engine.table("house", "id BIGINT, city STRING, size DOUBLE, rooms INT, price DOUBLE", key="id")
    engine.table("place", "city STRING, rent DOUBLE, salary DOUBLE", key="city")


def places(rng: np.random.Generator) -> pd.DataFrame:
    names = [f"c{i}" for i in range(12)]
    return pd.DataFrame({"city": names, "rent": rng.normal(9, 2, 12), "salary": rng.normal(30, 4, 12)})


def houses(rng: np.random.Generator, first: int, count: int) -> pd.DataFrame:
    size, rooms = rng.gamma(5, 20, count), rng.integers(1, 7, count)
    frame = pd.DataFrame({"id": range(first, first + count), "city": [f"c{i}" for i in rng.integers(0, 14, count)]})
    return frame.assign(size=size, rooms=rooms, price=3 * size + 0.01 * size**2 + 20 * rooms + rng.normal(0, 30, count))


def joined(engine: hr.Engine) -> pd.DataFrame:
    return engine.tables["house"].to_pandas().merge(engine.tables["place"].to_pandas(), on="city")


def changes(engine: hr.Engine, rng: np.random.Generator, step: int) -> dict[str, pd.DataFrame]:
    """New houses, some that go, and a place that changes."""
    there = engine.tables["house"].to_pandas()
    gone = there.sample(min(30, len(there)), random_state=step)
    place = engine.tables["place"].to_pandas().sample(1, random_state=step)
    moved = place.assign(rent=place["rent"] + 1)
    return {
        "house": pd.concat([houses(rng, 1000 * step, 80).assign(__diff=1), gone.assign(__diff=-1)]),
        "place": pd.concat([place.assign(__diff=-1), moved.assign(__diff=1)]),
    }


@seeds("models", 2)
def test_models_follow_inserts_deletes_and_restarts(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=3) as engine:
        tables(engine)
        engine.model("net", hr.ElasticNet("price", NUMBERS, alpha=2.0, l1_ratio=0.7), OVER)
        engine.model("lasso", hr.ElasticNet("price", ["size", "rooms"], alpha=5.0, l1_ratio=1.0), OVER)
        engine.model("pca", hr.PCA(3), OVER)
        products = hr.LinearRegression("price", ["size", "rooms", "rent"], polynomial=["size", "rooms"])
        engine.model("products", products, OVER)
        engine.covariance("moments", OVER)
        engine.apply({"place": places(rng), "house": houses(rng, 0, 200)})
        check(engine)
        for step in (1, 2):
            engine.apply(changes(engine, rng, step))
            check(engine)
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        check(engine)
        engine.apply(changes(engine, rng, 3))
        check(engine)
        assert engine.model("pca", hr.PCA(n_components=3), OVER) is engine.views["pca"]
        with pytest.raises(HeadraceError):
            engine.model("pca", hr.PCA(n_components=2), OVER)


def check(engine: hr.Engine) -> None:
    frame, views = joined(engine), engine.views
    y = frame["price"].to_numpy()
    for name, features, alpha, ratio in (("net", NUMBERS, 2.0, 0.7), ("lasso", ["size", "rooms"], 5.0, 1.0)):
        net = linear_model.ElasticNet(alpha=alpha, l1_ratio=ratio, tol=1e-12, max_iter=100_000)
        net.fit(frame[features].to_numpy(), y)
        np.testing.assert_allclose(views[name].coef_, net.coef_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(views[name].predict(frame), net.predict(frame[features].to_numpy()), rtol=1e-5)
    pca, numbers = views["pca"], ["size", "rooms", "price", "rent", "salary"]
    peer = decomposition.PCA(3).fit(frame[numbers].to_numpy())
    assert pca.feature_names_ == tuple(numbers)
    np.testing.assert_allclose(np.abs(pca.components_), np.abs(peer.components_), atol=1e-6)
    np.testing.assert_allclose(pca.explained_variance_, peer.explained_variance_)
    expand = PolynomialFeatures(2, include_bias=False)
    wide = np.column_stack([expand.fit_transform(frame[["size", "rooms"]]), frame["rent"]])
    least = linear_model.LinearRegression().fit(wide, y)
    products = views["products"]
    assert products.feature_names_ == ("size", "rooms", "rent", "size^2", "size rooms", "rooms^2")
    np.testing.assert_allclose(products.predict(frame), least.predict(wide), rtol=1e-7)
    assert products.score() == pytest.approx(least.score(wide, y))
    assert products.score(frame) == pytest.approx(least.score(wide, y))
    moments = views["moments"]
    np.testing.assert_allclose(moments.correlation, np.corrcoef(frame[list(moments.features)].to_numpy().T), atol=1e-9)
    sizes = frame[list(moments.features)].corr()["price"].drop("price").abs().sort_values(ascending=False)
    assert [name for name, _ in moments.ranking("price")] == list(sizes.index)


def test_every_model_has_one_per_group(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        by_city = f"{OVER.replace(', rent, salary', '')} GROUP BY city"
        net = engine.model("net", hr.ElasticNet("price", alpha=0.5, polynomial=["rooms"]), by_city)
        pca = engine.model("pca", hr.PCA(2, scale=True), by_city)
        assert (net.models, pca.to_arrow().num_rows) == ({}, 0)
        engine.apply({"place": places(rng)[:3], "house": houses(rng, 0, 300)})
        frame = joined(engine)
        assert set(net.models) == set(pca.models) == {("c0",), ("c1",), ("c2",)}
        predicted = net.predict(frame)
        for city, part in frame.groupby("city"):
            wide = np.column_stack([part["size"], part["rooms"], part["rooms"] ** 2])
            peer = linear_model.ElasticNet(alpha=0.5, tol=1e-12, max_iter=100_000).fit(wide, part["price"])
            np.testing.assert_allclose(predicted[part.index], peer.predict(wide), rtol=1e-5)
            scaled = (part[["size", "rooms", "price"]] - part[["size", "rooms", "price"]].mean()) / part[
                ["size", "rooms", "price"]
            ].std(ddof=0)
            found = decomposition.PCA(2).fit(scaled.to_numpy())
            np.testing.assert_allclose(pca.models[city,].explained_variance_, found.explained_variance_)
        by_spark = net.predict(spark.createDataFrame(frame)).toPandas().set_index("id")["prediction"]
        np.testing.assert_allclose(by_spark[frame["id"]], predicted)
        assert pca.to_arrow().num_rows == 6
        assert net.to_arrow().column_names == ["city", "count", "intercept", "size", "rooms", "rooms^2"]
        with pytest.raises(SchemaError, match="one model a group"):
            _ = pca.components_
        with pytest.raises(SchemaError, match="no predictions"):
            pca.predict(frame)


def test_models_by_group_follow_deletes_and_groups_that_vanish(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    by_city = f"{OVER.replace(', rent, salary', '')} GROUP BY city"
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        net = engine.model("net", hr.ElasticNet("price", alpha=0.5), by_city)
        pca = engine.model("pca", hr.PCA(2), by_city)
        engine.apply({"place": places(rng)[:4], "house": houses(rng, 0, 400)})
        check_by_city(engine, {"c0", "c1", "c2", "c3"})
        there = engine.tables["house"].to_pandas()
        gone = pd.concat([there[there["city"] == "c1"], there[there["city"] != "c1"].sample(120, random_state=1)])
        engine.apply({"house": gone.assign(__diff=-1)})
        check_by_city(engine, {"c0", "c2", "c3"})
        engine.apply({"place": places(np.random.default_rng(8))[2:3].assign(__diff=-1)})  # nobody's rows join any more
        check_by_city(engine, {"c0", "c3"})
        engine.apply({"house": houses(rng, 5_000, 300)})  # and one group comes back
        check_by_city(engine, {"c0", "c1", "c3"})
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        check_by_city(engine, {"c0", "c1", "c3"})
    assert (net.name, pca.name) == ("net", "pca")


def check_by_city(engine: hr.Engine, cities: set[str]) -> None:
    """Each group's models are those of scikit-learn over its rows, and no other group has any."""
    frame, columns = joined(engine), ["size", "rooms", "price"]
    net, pca = engine.views["net"], engine.views["pca"]
    assert set(frame["city"]) == cities
    assert set(net.models) == set(pca.models) == {(city,) for city in cities}
    for city, part in frame.groupby("city"):
        peer = linear_model.ElasticNet(alpha=0.5, tol=1e-12, max_iter=100_000)
        peer.fit(part[["size", "rooms"]].to_numpy(), part["price"].to_numpy())
        np.testing.assert_allclose(net.models[city,].coef_, peer.coef_, rtol=1e-5, atol=1e-6)
        assert net.models[city,].count_ == len(part)
        found = decomposition.PCA(2).fit(part[columns].to_numpy())
        np.testing.assert_allclose(pca.models[city,].explained_variance_, found.explained_variance_)
        np.testing.assert_allclose(np.abs(pca.models[city,].components_), np.abs(found.components_), atol=1e-6)


def test_a_handle_shows_what_its_model_has(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        pca = engine.model("pca", hr.PCA(2, ["size", "rooms"]), OVER)
        engine.apply({"place": places(rng), "house": houses(rng, 0, 50)})
        assert repr(pca) == "Model('pca', PCA(n_components=2, features=['size', 'rooms']))"
        assert {"components_", "transform", "count", "model"} <= set(dir(pca))
        assert not hasattr(pca, "coef_")
        with pytest.raises(AttributeError, match="coef_"):
            _ = pca.coef_
        with pytest.raises(SchemaError, match=r"no predictions.*\n.*components_"):
            pca.predict(joined(engine))
        with pytest.raises(SchemaError, match="no score"):
            pca.score()
        said = str(pca.explain())
        assert "the first 2 principal components of the covariance matrix; it is fitted when it is read" in said
        rows = joined(engine)
        shown = pca.transform(spark.createDataFrame(rows)).orderBy("id").toPandas()
        expected = pca.transform(rows.sort_values("id"))
        np.testing.assert_allclose(shown[["component_1", "component_2"]], expected)


def test_products_of_two_tables_are_refused_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        with pytest.raises(HeadraceError, match=r"column 'size rent'.*from one table"):
            engine.model("m", hr.LinearRegression("price", ["size", "rent"], polynomial=["size", "rent"]), OVER)
        with pytest.raises(HeadraceError, match="`wide` cannot be resolved"):
            engine.model("m", hr.LinearRegression("price", ["size"], polynomial=["wide"]), OVER)
        with pytest.raises(SchemaError, match="is no model"):
            engine.model("m", linear_model.Ridge(), OVER)  # type: ignore[arg-type]
        assert not engine.views


def test_settings_from_before_models_had_kinds_are_linear_regressions(spark: SparkSession, tmp_path: Path) -> None:
    from headrace.engine.definition import Definition

    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        engine.model("m", hr.LinearRegression("price", ["size"]), OVER)
        now = json.loads(json.dumps(engine.views["m"].planned.definition.to_json()))
    old = json.loads(json.dumps(now))
    for setting in ("kind", "polynomial"):
        del old["request"]["model"][setting]
    assert Definition.from_json(old).request == Definition.from_json(now).request
    old["request"]["model"]["kind"] = "Oracle"
    with pytest.raises(StorageError, match="'Oracle'"):
        Definition.from_json(old)
