"""Models over categories that an engine keeps: equal to scikit-learn on the joined rows after inserts and deletes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from sklearn.metrics import mutual_info_score
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import OrdinalEncoder
from tests.seeds import seeds

import headrace as hr
from headrace.errors import HeadraceError, NotEnoughDataError, SchemaError

OVER = "SELECT late, weather, vehicle, distance, district, cuisine FROM meal JOIN shop USING (shop)"
FEATURES = ["late", "weather", "vehicle", "distance", "district", "cuisine"]
BINS = {"distance": [1.0, 2.5, 4.0]}


def tables(engine: hr.Engine) -> None:
    engine.table("shop", "shop BIGINT, cuisine STRING, district INT", key="shop")
    columns = "id BIGINT, shop BIGINT, weather STRING, vehicle STRING, distance DOUBLE, late BOOLEAN"
    engine.table("meal", columns, key="id")


def shops(rng: np.random.Generator) -> pd.DataFrame:
    district = rng.integers(1, 4, 15)
    cuisine = np.where(rng.random(15) < 0.7, np.array(["pizza", "fish", "soup"])[district - 1], "rice")
    return pd.DataFrame({"shop": range(15), "cuisine": cuisine, "district": district})


def meals(rng: np.random.Generator, first: int, count: int, shop: pd.DataFrame) -> pd.DataFrame:
    frame = pd.DataFrame({"id": range(first, first + count), "shop": rng.integers(0, 17, count)})  # 15 and 16 are none
    frame["weather"] = rng.choice(["dry", "rain", "snow", None], count, p=[0.6, 0.3, 0.06, 0.04])
    frame["vehicle"] = rng.choice(["bike", "car"], count)
    far = np.append(shop["district"].to_numpy(), [1, 1])[frame["shop"]]
    frame["distance"] = far * rng.gamma(5, 0.2, count)
    late = 0.5 * frame["distance"] + 2 * ((frame["vehicle"] == "bike") & (frame["weather"] == "rain")) - 2
    frame["late"] = rng.random(count) < 1 / (1 + np.exp(-late))
    return frame


def joined(engine: hr.Engine) -> pd.DataFrame:
    """The rows that count: they join, and lack nothing."""
    return engine.tables["meal"].to_pandas().merge(engine.tables["shop"].to_pandas(), on="shop").dropna()


def in_bins(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(distance=np.searchsorted(BINS["distance"], rows["distance"], side="right"))


def changes(engine: hr.Engine, rng: np.random.Generator, step: int) -> dict[str, pd.DataFrame]:
    """New meals, old ones that go (all with snow, once), and a shop that moves."""
    there = engine.tables["meal"].to_pandas()
    gone = there[there["weather"] == "snow"] if step == 2 else there.sample(40, random_state=step)
    shop = engine.tables["shop"].to_pandas()
    one = shop.sample(1, random_state=step)
    new = meals(rng, 1000 * step, 120, shop)
    new = new[new["weather"] != "snow"] if step == 2 else new
    return {
        "meal": pd.concat([new.assign(__diff=1), gone.assign(__diff=-1)]),
        "shop": pd.concat([one.assign(__diff=-1), one.assign(district=4, __diff=1)]),
    }


def check(engine: hr.Engine) -> None:
    rows, views = joined(engine), engine.views
    frame = in_bins(rows)
    expected = np.array([[mutual_info_score(frame[a], frame[b]) for b in FEATURES] for a in FEATURES])
    shared = views["shared"]
    at = [shared.feature_names_.index(name) for name in FEATURES]
    np.testing.assert_allclose(shared.matrix_[np.ix_(at, at)], expected, atol=1e-12)
    np.testing.assert_allclose(shared.entropy_[at], np.diagonal(expected), atol=1e-12)
    others = {name: expected[0, i] for i, name in enumerate(FEATURES) if name != "late"}
    assert dict(shared.ranking_) == pytest.approx(others, abs=1e-12)
    assert [v for _, v in shared.ranking_] == sorted(dict(shared.ranking_).values(), reverse=True)
    tree = views["tree"]
    weight = {frozenset((a, b)): expected[i, j] for (i, a), (j, b) in combinations(enumerate(FEATURES), 2)}
    for a, b, information in tree.edges_:
        assert information == pytest.approx(weight[frozenset((a, b))], abs=1e-12)
    assert sum(e[2] for e in tree.edges_) == pytest.approx(heaviest(weight), abs=1e-9)
    names = ["weather", "vehicle", "distance", "cuisine"]
    bayes, encoder = views["bayes"], OrdinalEncoder().fit(frame[names])
    peer = CategoricalNB(alpha=0.5, force_alpha=True).fit(encoder.transform(frame[names]), frame["late"])
    likely = bayes.predict_proba(rows)
    np.testing.assert_allclose(likely, peer.predict_proba(encoder.transform(frame[names])), atol=1e-12)
    assert bayes.classes_ == [False, True]
    assert bayes.count_ == bayes.count == len(frame)
    assert bayes.levels_["weather"] == sorted(frame["weather"].unique())


def heaviest(weight: dict[frozenset[str], float]) -> float:
    """The weight of a maximum spanning tree, by Kruskal."""
    part = {name: {name} for pair in weight for name in pair}
    total = 0.0
    for pair in sorted(weight, key=weight.__getitem__, reverse=True):
        a, b = pair
        if part[a] is not part[b]:
            total += weight[pair]
            part[a] |= part[b]
            for name in part[a]:
                part[name] = part[a]
    return total


@seeds("count models", 2)
def test_models_of_categories_follow_inserts_deletes_and_restarts(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shop = shops(rng)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=3) as engine:
        tables(engine)
        tree = engine.model("tree", hr.ChowLiuTree(FEATURES, bins=BINS), OVER)
        engine.model("shared", hr.MutualInformation(label="late", bins=BINS), OVER)
        names = ["weather", "vehicle", "distance", "cuisine"]
        engine.model("bayes", hr.NaiveBayes("late", names, alpha=0.5, bins=BINS), OVER)
        with pytest.raises(NotEnoughDataError, match="no rows"):
            _ = tree.edges_
        engine.apply({"shop": shop, "meal": meals(rng, 0, 400, shop)})
        check(engine)
        for step in (1, 2):
            engine.apply(changes(engine, rng, step))
            check(engine)
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        check(engine)
        engine.apply(changes(engine, rng, 3))
        check(engine)
        again = engine.model("tree", hr.ChowLiuTree(FEATURES, bins=BINS), OVER)
        assert again is engine.views["tree"]
        with pytest.raises(HeadraceError):
            engine.model("tree", hr.ChowLiuTree(FEATURES, bins={"distance": [1.0]}), OVER)
        late = engine.model("filled", hr.ChowLiuTree(FEATURES, bins=BINS), OVER)  # from rows that are there
        assert late.edges_ == again.edges_


def test_trees_by_group_are_those_of_kruskal(spark: SparkSession, tmp_path: Path) -> None:
    """Each group's tree is as heavy as the heaviest over its own rows, after deletes and without groups that vanish."""
    rng = np.random.default_rng(21)
    shop = shops(rng)
    names = ["late", "weather", "vehicle", "cuisine"]

    def check_trees(engine: hr.Engine) -> set[int]:
        frame, models = joined(engine), engine.views["tree"].models  # type: ignore[union-attr]
        assert set(models) == {(district,) for district in frame["district"].unique()}
        for district, part in frame.groupby("district"):
            weight = {frozenset((a, b)): mutual_info_score(part[a], part[b]) for a, b in combinations(names, 2)}
            edges = models[district,].edges_
            assert len(edges) == len(names) - 1
            for a, b, information in edges:
                assert information == pytest.approx(weight[frozenset((a, b))], abs=1e-12)
            assert sum(e[2] for e in edges) == pytest.approx(heaviest(weight), abs=1e-9)
        return set(frame["district"])

    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        sql = f"SELECT district, {', '.join(names)} FROM meal JOIN shop USING (shop) GROUP BY district"
        engine.model("tree", hr.ChowLiuTree(names), sql)
        engine.apply({"shop": shop, "meal": meals(rng, 0, 900, shop)})
        assert check_trees(engine) == {1, 2, 3}
        engine.apply(changes(engine, rng, 1))
        before = check_trees(engine)
        there, third = engine.tables["meal"].to_pandas(), shop[shop["district"] == 3]["shop"]
        engine.apply({"meal": there[there["shop"].isin(third)].assign(__diff=-1)})
        assert check_trees(engine) < before
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        check_trees(engine)


def test_what_a_tree_shows(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    shop = shops(rng)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        tree = engine.model("tree", hr.ChowLiuTree(["late", "weather", "vehicle"]), OVER)
        engine.apply({"shop": shop, "meal": meals(rng, 0, 300, shop).assign(vehicle="car")})
        assert not tree.changes_
        first = tree.edges_
        assert tree.edges_ is first  # fitted once
        new = meals(rng, 1000, 3000, shop).assign(weather="dry")
        engine.apply({"meal": new.assign(vehicle=np.where(new["late"], "bike", "car"))})
        assert any({"late", "vehicle"} == {a, b} for a, b, _ in tree.edges_)
        changes = tree.changes_
        assert changes
        engine.compact()  # which stores the same counts in other files
        assert tree.changes_ == changes
        assert tree.to_svg().startswith("<svg")
        assert tree.to_dot().startswith("graph")
        assert tree.to_arrow().column_names == ["a", "b", "information"]
        assert tree.to_pandas().shape == (2, 3)
        assert repr(tree) == "Model('tree', ChowLiuTree(features=['late', 'weather', 'vehicle']))"
        assert "spanning tree of largest mutual information" in str(tree.explain())
        with pytest.raises(SchemaError, match="no predictions"):
            tree.predict(new)
        shared = engine.model("shared", hr.MutualInformation(["late", "vehicle"]), OVER)
        with pytest.raises(SchemaError, match="no label"):
            _ = shared.ranking_
        assert shared.ranking("late")[0][0] == "vehicle"


def test_models_of_categories_by_group(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    shop = shops(rng)
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        sql = "SELECT district, late, weather, vehicle FROM meal JOIN shop USING (shop) GROUP BY district"
        shared = engine.model("shared", hr.MutualInformation(["late", "weather", "vehicle"]), sql)
        bayes = engine.model("bayes", hr.NaiveBayes("late", ["weather", "vehicle"]), sql)
        assert shared.models == {}
        engine.apply({"shop": shop, "meal": meals(rng, 0, 900, shop)})
        engine.apply(changes(engine, rng, 1))
        frame = joined(engine)
        assert set(shared.models) == {(district,) for district in frame["district"].unique()}
        for district, part in frame.groupby("district"):
            expected = mutual_info_score(part["late"], part["vehicle"])
            model = shared.models[district,]
            at = [model.feature_names_.index(name) for name in ("late", "vehicle")]
            assert model.matrix_[at[0], at[1]] == pytest.approx(expected, abs=1e-12)
        predicted = bayes.predict(frame)
        for district, part in frame.groupby("district"):
            assert (predicted[part.index] == bayes.models[district,].predict(part)).all()
        by_spark = bayes.predict(spark.createDataFrame(frame)).toPandas().set_index("id")["prediction"]
        assert (by_spark[frame["id"]].to_numpy() == predicted.to_numpy()).all()
        unknown = frame.head(2).assign(district=99)
        assert bayes.predict(unknown).isna().all()
        assert set(bayes.to_pandas()["district"]) == set(frame["district"])


def test_categories_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        with pytest.raises(SchemaError, match="'colour'"):
            engine.model("m", hr.ChowLiuTree(["late", "colour"]), OVER)
        with pytest.raises(HeadraceError, match="colour"):
            engine.model("m", hr.NaiveBayes("colour", bins=BINS), OVER)
        with pytest.raises(SchemaError, match=r"'distance' is DOUBLE.*\n.*bins="):
            engine.model("m", hr.ChowLiuTree(["late", "distance"]), OVER)
        with pytest.raises(SchemaError, match="'weather' is STRING, not a number"):
            engine.model("m", hr.PCA(features=["district", "weather"]), OVER)
        with pytest.raises(SchemaError, match="PCA learns from numbers"):
            engine.model("m", hr.PCA(), OVER, categorical=["district"])
        assert engine.model("pca", hr.PCA(), OVER).features == ("late", "distance", "district")
        engine.drop("pca")
        with pytest.raises(HeadraceError, match="colour"):
            engine.model("m", hr.ChowLiuTree(["late", "weather"], bins={"colour": [1]}), OVER)
        assert not engine.views
