"""An engine that only reads sees what another one does: its steps, its tables and views, and how these are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import always

import headrace as hr
from headrace.engine.sharing import Sharing
from headrace.errors import CorruptFileError, SchemaError, StorageError


@pytest.fixture
def writer(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        yield engine


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path, writer: hr.Engine) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path / "s", read_only=True) as engine:
        yield engine


def rows(*ids: int, diff: int = 1) -> dict[str, pa.Table]:
    taken = {"id": ids, "g": [i % 2 for i in ids], "x": [1e6 + i for i in ids], "__diff": [diff] * len(ids)}
    return {"t": pa.table(taken)}


def test_steps_are_seen_wherever_one_looks(writer: hr.Engine, reader: hr.Engine) -> None:
    table = reader.tables["t"]
    writer.apply(rows(1, 2, 3))
    assert (reader.step, table.rows, reader.status()["step"], table.to_arrow().num_rows) == (1, 3, 1, 3)
    writer.apply(rows(3, diff=-1))
    assert (table.to_df().count(), reader.step) == (2, 2)


def test_new_tables_and_views_are_seen(writer: hr.Engine, reader: hr.Engine) -> None:
    assert reader.views == {}
    writer.table("u", "id BIGINT, name STRING", key="id")
    writer.apply(rows(1, 2) | {"u": pa.table({"id": [1], "name": ["a"]})})
    writer.view("v", "SELECT name, x FROM t JOIN u USING (id)")
    assert set(reader.tables) == {"t", "u"}
    assert reader.views["v"].to_arrow().to_pylist() == [{"name": "a", "x": 1000001.0}]
    assert "v" in str(reader.explain())
    writer.drop("v")
    writer.drop("u")
    assert (set(reader.tables), reader.views) == ({"t"}, {})


def test_a_view_that_was_made_anew_is_another_one(writer: hr.Engine, reader: hr.Engine) -> None:
    writer.apply(rows(1, 2, 3))
    writer.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    old = reader.views["v"]
    assert old.to_arrow().num_rows == 2
    writer.drop("v")
    writer.view("v", "SELECT MAX(x) AS high, COUNT(*) AS n FROM t")
    for read in (old.to_arrow, old.to_df, old.changes, old.explain):
        with pytest.raises(SchemaError, match="has been dropped"):
            read()
    assert reader.views["v"].to_arrow().to_pylist() == [{"high": 1000003.0, "n": 3}]


def test_moments_are_those_of_the_data_once_it_comes(writer: hr.Engine, reader: hr.Engine) -> None:
    """The first rows decide what is subtracted from each feature, so the state means something else after them."""
    writer.covariance("c", "SELECT x, g FROM t")
    writer.model("m", hr.LinearRegression(label="x"), over="SELECT x, g FROM t")
    moments, model = reader.views["c"], reader.views["m"]
    writer.apply(rows(*range(1, 41)))
    x = 1e6 + np.arange(1, 41)
    found = moments.moments()  # type: ignore[union-attr]
    assert found.mean.tolist() == pytest.approx([x.mean(), 0.5], rel=1e-12)
    assert found.centred()[0, 0] == pytest.approx(((x - x.mean()) ** 2).sum(), rel=1e-9)
    assert model.count == 40  # type: ignore[union-attr]
    assert model.intercept_ == pytest.approx(writer.views["m"].intercept_)  # type: ignore[union-attr]


def test_what_views_share_is_followed(writer: hr.Engine, reader: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    monkeypatch.setattr(Sharing, "_known", lambda self, views: {"t", "u"})
    writer.table("u", "g BIGINT, name STRING", key="g")
    writer.apply(rows(1, 2, 3) | {"u": pa.table({"g": [0, 1], "name": ["even", "odd"]})})
    writer.view("a", "SELECT name, MAX(x) AS high FROM t JOIN u USING (g) GROUP BY name", strategy="operators")
    kept = reader.views["a"]
    writer.view("b", "SELECT name, COUNT(DISTINCT x) AS n FROM t JOIN u USING (g) GROUP BY name", strategy="operators")
    writer.settle()
    writer.apply(rows(4, 5))
    assert writer._catalogue.shared
    assert kept.to_arrow().to_pylist() == writer.views["a"].to_arrow().to_pylist()
    assert "shared subplan" in str(kept.explain())
    writer.drop("b")
    writer.apply(rows(6))
    assert kept.to_arrow().to_pylist() == writer.views["a"].to_arrow().to_pylist()


def test_files_that_are_merged_away_are_no_damage(
    writer: hr.Engine, reader: hr.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    view = reader.views["v"]
    writer.apply(rows(1, 2))
    answer, failed = view._answer.table, []  # type: ignore[union-attr]

    def table(found: object) -> pa.Table:
        if not failed:
            failed.append(True)
            writer.apply(rows(3))  # the snapshot of the reader is that of before, and its files are gone
            raise CorruptFileError("run file x is damaged: it is missing", way_out="")
        return answer(found)

    monkeypatch.setattr(type(view._answer), "table", lambda self, found: table(found))  # type: ignore[union-attr]
    assert sorted(row["n"] for row in view.to_arrow().to_pylist()) == [1, 2]
    failed.clear()

    def dropped(found: object) -> pa.Table:
        if not failed:
            failed.append(True)
            writer.drop("v")
            raise CorruptFileError("run file x is damaged: it is missing", way_out="")
        return answer(found)

    monkeypatch.setattr(type(view._answer), "table", lambda self, found: dropped(found))  # type: ignore[union-attr]
    with pytest.raises(StorageError, match="changes faster than it can be read"):
        view.to_arrow()
