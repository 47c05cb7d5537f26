"""Mutual information, Chow-Liu trees and naive Bayes from counts, against scikit-learn and all spanning trees."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import mutual_info_score
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import OrdinalEncoder
from tests.seeds import seeds

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn.bins import equal_bins
from headrace.learn.chow_liu import ChowLiuTree, spanning_tree
from headrace.learn.counted_rows import CountedRows
from headrace.learn.mutual_information import MutualInformation
from headrace.learn.naive_bayes import NaiveBayes


def drawn(seed: int, rows: int = 400) -> pd.DataFrame:
    """Categories of several types; each depends on one before it."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Ulm", "Bonn", "Rom", "Kiel"], rows, p=[0.5, 0.3, 0.15, 0.05])
    rent = (city == "Ulm") * 3 + rng.integers(0, 4, rows)
    size = rent // 2 + rng.integers(0, 2, rows)
    open_ = rng.random(rows) < np.where(size > 1, 0.8, 0.3)
    day = rng.choice(["mon", "tue"], rows)
    return pd.DataFrame({"city": city, "rent": rent, "size": size, "open": open_, "day": day})


@seeds("mutual information", 4)
def test_mutual_information_is_that_of_scikit_learn(seed: int) -> None:
    frame = drawn(seed)
    model = MutualInformation().fit(CountedRows(frame))
    for i, a in enumerate(frame.columns):
        for j, b in enumerate(frame.columns):
            assert model.matrix_[i, j] == pytest.approx(mutual_info_score(frame[a], frame[b]), abs=1e-12)
        share = frame[a].value_counts(normalize=True)
        assert model.entropy_[i] == pytest.approx(-(share * np.log(share)).sum())
    ranked = MutualInformation(["city", "rent", "size"], label="open").fit(CountedRows(frame)).ranking_
    expected = {name: mutual_info_score(frame[name], frame["open"]) for name in ("city", "rent", "size")}
    assert [name for name, _ in ranked] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert dict(ranked) == pytest.approx(expected)


def test_example_by_hand() -> None:
    """Section 8.2 with C_0 = 4: I = 2/4 log(4*2/(2*3)) + 1/4 log(4*1/(2*3)) + 1/4 log(4*1/(2*1))."""
    rows = {"x": ["a", "a", "b", "b"], "y": [1, 1, 1, 2]}
    expected = 0.5 * np.log(8 / 6) + 0.25 * np.log(4 / 6) + 0.25 * np.log(4 / 2)
    assert MutualInformation().fit(CountedRows(rows)).matrix_[0, 1] == pytest.approx(expected)


def test_independent_features_have_none_and_a_copy_has_all() -> None:
    rows = {"x": list("aabb"), "y": [1, 2, 1, 2], "z": list("ppqq")}
    model = MutualInformation().fit(CountedRows(rows))
    assert model.matrix_[0, 1] == 0.0
    assert model.matrix_[0, 2] == pytest.approx(model.entropy_[0]) == pytest.approx(np.log(2))
    with pytest.raises(SchemaError, match="no label"):
        _ = model.ranking_
    with pytest.raises(SchemaError, match="no feature 'w'"):
        model.ranking("w")


@seeds("spanning trees", 6)
def test_no_spanning_tree_weighs_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 8))
    weights = rng.random((m, m))
    weights = weights + weights.T
    found = spanning_tree(weights)
    assert {node for edge in found for node in edge} == set(range(m))
    assert len(found) == m - 1
    for i, (_, added) in enumerate(found):
        assert added not in {a for a, _ in found[: i + 1]}  # each edge leaves the tree that is there
    peer = -minimum_spanning_tree(np.triu(-weights, 1)).sum()
    assert sum(weights[edge] for edge in found) == pytest.approx(peer)


@seeds("chow-liu", 4)
def test_trees_have_the_largest_information(seed: int) -> None:
    frame = drawn(seed)
    tree = ChowLiuTree(["city", "rent", "size", "open", "day"]).fit(CountedRows(frame))
    weight = {
        frozenset(pair): mutual_info_score(frame[pair[0]], frame[pair[1]])
        for pair in itertools.combinations(frame.columns, 2)
    }
    for a, b, information in tree.edges_:
        assert information == pytest.approx(weight[frozenset((a, b))])
    most = max(
        sum(weight[frozenset(pair)] for pair in edges)
        for edges in itertools.combinations([tuple(pair) for pair in weight], 4)
        if _connected(edges, len(frame.columns))
    )
    assert sum(edge[2] for edge in tree.edges_) == pytest.approx(most)


def _connected(edges: tuple[tuple[str, ...], ...], nodes: int) -> bool:
    reached = set(edges[0])
    for _ in edges:
        for edge in edges:
            if reached & set(edge):
                reached |= set(edge)
    return len(reached) == nodes


def test_a_tree_says_what_changed_since_the_last_fit() -> None:
    rows = {"x": list("aabb"), "y": list("ccdd"), "z": list("efef")}
    tree = ChowLiuTree().fit(CountedRows(rows))
    assert not tree.changes_
    assert [edge[:2] for edge in tree.edges_] == [("x", "y"), ("x", "z")]
    tree.fit(CountedRows({**rows, "z": list("ccdd"), "y": list("efef")}))
    assert [edge[:2] for edge in tree.edges_] == [("x", "z"), ("x", "y")]
    assert not tree.changes_  # the same edges, with other weights
    tree.fit(CountedRows({"x": list("abab"), "y": list("ccdd"), "z": list("ccdd")}))
    assert [edge[:2] for edge in tree.changes_.added] == [("y", "z")]
    assert [edge[:2] for edge in tree.changes_.removed] == [("x", "z")]
    tree.fit(CountedRows({"x": list("baba"), "y": list("ddcc"), "z": list("ddcc")}))
    assert tree.changes_.added  # the same data in another order is no other data


def test_a_tree_is_drawn() -> None:
    tree = ChowLiuTree().fit(CountedRows({"a & b": list("aabb"), 'say "c"': list("ccdd"), "z": list("efef")}))
    drawing = ET.fromstring(tree.to_svg("a < b"))
    texts = [node.text for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a & b", 'say "c"', "z", "a < b", "0.693", "0.000"} <= set(texts)
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) == 2
    boxes = [n for n in drawing.iter("{http://www.w3.org/2000/svg}rect") if n.get("class") == "box"]
    spots = {(box.get("x"), box.get("y")) for box in boxes}
    assert len(spots) == 3
    assert '"say \\"c\\""' in tree.to_dot()
    assert tree.to_dot().count(" -- ") == 2


def test_a_long_chain_is_drawn_without_recursion() -> None:
    rng = np.random.default_rng(0)
    columns, last = {}, rng.integers(0, 4, 3000)
    for i in range(60):
        last = np.where(rng.random(3000) < 0.9, last, rng.integers(0, 4, 3000))
        columns[f"f{i}"] = last
    tree = ChowLiuTree().fit(CountedRows(columns))
    assert ET.fromstring(tree.to_svg()) is not None
    assert sum(abs(int(a[1:]) - int(b[1:])) == 1 for a, b, _ in tree.edges_) > 55


@seeds("naive bayes", 4)
@pytest.mark.parametrize(("alpha", "fit_prior"), [(1.0, True), (0.1, False), (1e-9, True)])
def test_naive_bayes_is_that_of_scikit_learn(seed: int, alpha: float, fit_prior: bool) -> None:
    frame = drawn(seed)
    features = ["city", "rent", "size", "open"]
    model = NaiveBayes("day", features, alpha, fit_prior=fit_prior).fit(CountedRows(frame))
    encoder = OrdinalEncoder().fit(frame[features])
    peer = CategoricalNB(alpha=alpha, fit_prior=fit_prior, force_alpha=True)
    peer.fit(encoder.transform(frame[features]), frame["day"])
    assert model.classes_ == peer.classes_.tolist()
    np.testing.assert_allclose(model.class_log_prior_, peer.class_log_prior_)
    for name, expected, counts in zip(features, peer.feature_log_prob_, peer.category_count_, strict=True):
        np.testing.assert_allclose(model.feature_log_prob_[name], expected)
        assert (model.category_count_[name] == counts).all()
    asked = drawn(seed + 1, 100)
    asked = asked[asked["rent"].isin(frame["rent"]) & asked["size"].isin(frame["size"])]
    likely = peer.predict_proba(encoder.transform(asked[features]))
    np.testing.assert_allclose(model.predict_proba(asked), likely, atol=1e-12)
    sure = np.abs(likely[:, 0] - 0.5) > 1e-9
    assert (model.predict(asked)[sure] == peer.predict(encoder.transform(asked[features]))[sure]).all()
    assert model.score(frame) == pytest.approx(peer.score(encoder.transform(frame[features]), frame["day"]), abs=0.02)


def test_levels_that_are_missing_or_unknown_have_no_prediction() -> None:
    frame = pd.DataFrame({"x": ["a", "a", "b"], "n": [1, 2, 2], "y": [True, True, False]})
    model = NaiveBayes("y").fit(CountedRows(frame))
    asked = pd.DataFrame({"x": ["a", "c", None, "b", "b"], "n": [1.0, 1.0, 2.0, np.nan, 1.5]})
    predicted = model.predict(asked)
    assert predicted.isna().tolist() == [False, True, True, True, True]
    assert predicted[0] is True or predicted[0] == True  # noqa: E712
    arrow = pa.table({"x": ["a", "c", None], "n": [1, 1, 2]})
    assert model.predict(arrow).to_pylist() == [True, None, None]
    shares = model.predict_proba(arrow)
    assert shares.column_names == ["False", "True"]
    assert shares.column("True").null_count == 2
    with pytest.raises(SchemaError, match="lacks 'n'"):
        model.predict(asked[["x"]])
    with pytest.raises(SchemaError, match="levels that are"):
        model.predict(pd.DataFrame({"x": ["a"], "n": ["one"]}))
    with pytest.raises(SchemaError, match="given a list"):
        model.predict([1])
    assert model.score(frame) == 1.0
    with pytest.raises(NotEnoughDataError, match="no row"):
        model.score(pd.DataFrame({"x": ["z"], "n": [1], "y": [True]}))


def test_spark_evaluates_naive_bayes_itself(spark: SparkSession) -> None:
    frame = drawn(3).assign(price=np.random.default_rng(3).normal(size=400))
    bins = equal_bins(frame, ["price"], 5)
    counted = frame.assign(price=np.searchsorted(bins["price"], frame["price"], side="right"))
    model = NaiveBayes("city", ["rent", "price", "day"], bins=bins).fit(CountedRows(counted))
    asked = pd.concat([frame.head(50), frame.head(2).assign(day="sun"), frame.head(1).assign(day=None)])
    asked["row"] = range(len(asked))
    by_spark = model.predict(spark.createDataFrame(asked)).toPandas().sort_values("row")
    local = model.predict(asked)
    assert [None if pd.isna(v) else v for v in by_spark["prediction"]] == [None if pd.isna(v) else v for v in local]
    assert local.isna().sum() == 3


def test_bins_hold_about_equally_many_rows() -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(1).gamma(2, size=10_000), "same": 1.0})
    found = equal_bins(frame, ["x", "same"], 10)
    assert len(found["x"]) == 9
    places = np.searchsorted(found["x"], frame["x"], side="right")
    assert np.bincount(places).tolist() == [1000] * 10
    assert found["same"] == [1.0]
    with pytest.raises(SchemaError, match="1 bins"):
        equal_bins(frame, ["x"], 1)


@pytest.mark.parametrize("wrong", [{"x": []}, {"x": [2, 1]}, {"x": [float("nan")]}, 10])
def test_bins_without_edges_are_refused(wrong: object) -> None:
    with pytest.raises(SchemaError, match="edges"):
        MutualInformation(["x", "y"], bins=wrong)  # type: ignore[arg-type]


def test_features_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SchemaError, match="too few"):
        ChowLiuTree(["x"])
    with pytest.raises(SchemaError, match="more than once"):
        MutualInformation(["x", "x"])
    with pytest.raises(SchemaError, match="label 'x' is among"):
        NaiveBayes("x", ["x"])
    with pytest.raises(SchemaError, match="the string"):
        ChowLiuTree("xy")
    with pytest.raises(SchemaError, match="no categorical feature 'z'"):
        ChowLiuTree(["x", "z"]).fit(CountedRows({"x": ["a"], "y": ["b"]}))
    with pytest.raises(SchemaError, match="alpha"):
        NaiveBayes("y", alpha=0)
