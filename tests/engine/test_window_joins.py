"""Window joins in an engine: answers as in one process, on both executors, restarted, filled, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.window.streams import recomputed, steady
from tests.window.test_window_view import batches, expected

import headrace as hr
from headrace.datasets.disorder import Stream
from headrace.errors import BadRowsError, SchemaError, StorageError
from headrace.window.spec import WindowSpec

COLUMNS = "k BIGINT, v DOUBLE, at TIMESTAMP, came TIMESTAMP"
ASKED: dict[str, Any] = {
    "on": "k",
    "time": "at",
    "arrival": "came",
    "window": "10 ms",
    "emit_after": "8 ms",
    "horizon": "25 ms",
}
SPEC = WindowSpec.parse("10 ms", emit_after="8 ms", horizon="25 ms")


def rows(stream: Stream) -> pa.Table:
    times = {
        name: pa.array(t).cast(pa.timestamp("us", "UTC"))
        for name, t in (("at", stream.event), ("came", stream.arrival))
    }
    return pa.table({"k": stream.key, "v": stream.value, **times})


def tables(engine: hr.Engine, **options: object) -> None:
    for name in ("r", "s"):
        engine.table(name, COLUMNS, append_only=True, **options)  # type: ignore[arg-type]


def joined(engine: hr.Engine, name: str = "pairs", **options: object) -> hr.WindowJoinView:
    return engine.window_join(name, "r", "s", **(ASKED | options))  # type: ignore[arg-type]


def apply(engine: hr.Engine, step: list[Stream]) -> None:
    engine.apply({name: rows(stream) for name, stream in zip(("r", "s"), step, strict=True)})


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_answers_are_those_of_one_process(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    steps = batches(steady(300_000, rate=3_000), 6)
    with hr.Engine(spark, tmp_path, executor=executor, buckets=3) as engine:
        tables(engine, keep_rows=False)
        view = joined(engine)
        told = []
        for number, step in enumerate(steps):
            apply(engine, step)
            told += view.changes().to_pylist()
            if number == 2:
                break
    with hr.Engine(spark, tmp_path, executor=executor) as engine:  # what was learned goes on
        view = engine.views["pairs"]
        assert isinstance(view, hr.WindowJoinView)
        for step in steps[3:]:
            apply(engine, step)
            told += view.changes().to_pylist()
        wanted = [answer for answer in expected(SPEC, steps) if not answer.final]
        found = view.to_arrow().to_pylist()
        assert [row["observed"] for row in found] == [answer.observed for answer in wanted]
        values = [answer.estimates["auto"].value for answer in wanted]
        assert [row["value"] for row in found] == [pytest.approx(value, rel=1e-6) for value in values]
        assert [{name: value for name, value in row.items() if name != "__diff"} for row in told] == found
        frame = view.to_df().orderBy("window_start").toPandas()
        assert frame["value"].tolist() == [row["value"] for row in found]
        assert view.rows == len(found)


def test_final_answers_are_a_recomputation_and_late_rows_are_kept_aside(spark: SparkSession, tmp_path: Path) -> None:
    left, right = steady(300_000, rate=3_000)
    too_late = Stream.of([1, 2], [5, 6], [1_000, 2_000], [290_000, 290_000])
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        view = joined(engine, revisions="final", agg="sum(right.v)")
        for step in batches((left, right), 4):
            apply(engine, step)
        apply(engine, [too_late, too_late.take([])])
        truth = recomputed(left, right, SPEC.length, SPEC.slide, 1)
        found = view.to_arrow().to_pylist()
        assert len(found) > 20
        for row in found:
            assert row["value"] == pytest.approx(truth[int(row["window_start"].timestamp() * 100)][3])
        late = view.late().to_pylist()
        assert [(row["side"], row["k"]) for row in late] == [("left", 1), ("left", 2)]
        text = str(view.explain())
        assert "sum(right.v)" in text
        assert "2 rows that came too late" in text
        assert view.explain().to_dict()["values"]["too_late"] == 2
        assert (view.explain()["missed"], "missed" in text) == (0, False)
        assert engine.status()["views"][0]["rows"] == len(found)
        engine.drop("pairs")
        # Filled from the rows that tables have, in the order of their arrival: the same answers.
        again = joined(engine, revisions="final", agg="sum(right.v)").to_arrow().to_pylist()
        assert [row["window_start"] for row in again] == [row["window_start"] for row in found]
        assert [row["value"] for row in again] == [pytest.approx(row["value"]) for row in found]


@pytest.mark.parametrize("seed", range(8))
def test_final_answers_of_sparse_keys_in_any_steps_are_a_recomputation(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Keys of which only one side has rows in a step must stay for those of the other, whatever runs are merged."""
    rng = np.random.default_rng(seed)
    streams = steady(200_000, rate=float(rng.choice([3_000, 20_000])), keys=int(rng.choice([30, 300])), seed=seed)
    agg = ("count", "sum(v)", "avg(v)", "sum(right.v)")[seed % 4]
    slide = ("10 ms", "5 ms")[seed // 4]
    with hr.Engine(spark, tmp_path, executor="inline", buckets=int(rng.integers(1, 5))) as engine:
        tables(engine, keep_rows=False)
        view = joined(engine, slide=slide, revisions="final", agg=agg, estimator="aema")
        for step in batches(streams, int(rng.integers(3, 20))):
            apply(engine, step)
        found = view.to_arrow().to_pylist()
    spec = WindowSpec.parse("10 ms", slide=slide, emit_after="8 ms", horizon="25 ms")
    truth = recomputed(*streams, spec.length, spec.slide, int("right" in agg))
    assert len(found) > 10
    for row in found:
        _, _, matches, total = truth[round(row["window_start"].timestamp() * 1e6) // spec.slide]
        wanted = {"count": matches, "avg(v)": total / matches if matches else None}.get(agg, total)
        assert row["value"] == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("agg", "slide", "within"),
    [("count", "10 ms", None), ("sum(v)", "5 ms", None), ("avg(right.v)", "10 ms", None), ("sum(v)", "10 ms", "2 ms")],
)
def test_what_each_key_comes_to(spark: SparkSession, tmp_path: Path, agg: str, slide: str, within: str | None) -> None:
    streams = steady(120_000, rate=4_000, keys=40)
    spec = WindowSpec.parse("10 ms", slide=slide, emit_after="8 ms", horizon="25 ms", within=within)
    name = "a key: of text"
    steps = batches(streams, 7)
    with hr.Engine(spark, tmp_path, buckets=3) as engine:
        for table in ("r", "s"):
            engine.table(table, f"`{name}` STRING, n INT, {COLUMNS}", append_only=True, keep_rows=False)
        asked = {"on": [name, "n"], "slide": slide, "within": within, "agg": agg, "by_key": True}
        view = joined(engine, estimator="aema", **asked)
        assert view.by_key().num_rows == 0
        with pytest.raises(SchemaError, match="create it with by_key=True"):
            joined(engine, "others", on=name).by_key()
        engine.drop("others")
        for number, step in enumerate(steps):
            given = {}
            for table, stream in zip(("r", "s"), step, strict=True):
                keys = {name: [f"k{k}" for k in stream.key], "n": pa.array(stream.key % 3, pa.int32())}
                given[table] = pa.table(keys | dict(zip(rows(stream).column_names, rows(stream).columns, strict=True)))
            engine.apply(given)
            if number == len(steps) // 2:
                assert {row["final"] for row in view.by_key().to_pylist()} == {True, False}
        found = view.by_key()
    wanted = keyed(streams, spec, agg, spec.within)
    assert found.column_names == ["window_start", "window_end", name, "n", "value", "final"]
    assert {
        (round(row["window_start"].timestamp() * 1e6) // spec.slide, row[name], row["n"]): row["value"]
        for row in found.to_pylist()
    } == {(window, f"k{k}", k % 3): pytest.approx(value) for (window, k), value in wanted.items()}


def keyed(streams: tuple[Stream, Stream], spec: WindowSpec, agg: str, within: int | None) -> dict[Any, float]:
    """What each key of each window comes to, by nested loops; a pair is in the windows of its left row."""
    left, right = (list(zip(s.key.tolist(), s.value.tolist(), s.event.tolist(), strict=True)) for s in streams)
    values: dict[Any, list[float]] = {}
    for key, value, event in left:
        window = event // spec.slide
        while window * spec.slide + spec.length > event:
            start = window * spec.slide
            for other, others, at in right:
                near = start <= at < start + spec.length if within is None else abs(at - event) <= within
                if other == key and near:
                    values.setdefault((window, key), []).append(others if "right" in agg else value)
            window -= 1
    if agg == "count":
        return {where: len(found) for where, found in values.items()}
    return {where: sum(found) / (len(found) if agg.startswith("avg") else 1) for where, found in values.items()}


def test_interval_joins(spark: SparkSession, tmp_path: Path) -> None:
    left, right = steady(200_000, rate=3_000)
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        view = joined(engine, within="2 ms", revisions="final")
        for step in batches((left, right), 5):
            apply(engine, step)
        near = np.abs(left.event[:, None] - right.event[None, :]) <= 2_000
        pairs = near & (left.key[:, None] == right.key[None, :])
        found = view.to_arrow().to_pylist()
        assert len(found) > 10
        for window, row in enumerate(found):
            assert row["value"] == pairs[left.event // 10_000 == window].sum()
        assert "at most 2 milliseconds apart" in str(view.explain())
        assert not hasattr(view, "finals")  # its answers say themselves whether they are final


def test_what_comes_in_steps_of_its_own_after_time_has_passed_is_said(spark: SparkSession, tmp_path: Path) -> None:
    left, right = steady(200_000, rate=1_000)
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        view = joined(engine)
        engine.apply({"r": rows(left)})
        engine.apply({"s": rows(right)})
        explained = view.explain()
        assert explained["missed"] > 100
        assert f"{explained['missed']:,} rows of windows that were complete" in str(explained)


def test_bad_rows_are_refused_or_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    good = Stream.of([1], [1], [1_000], [2_000])
    bad = pa.table(rows(good)).to_pandas()
    bad["came"] = bad["at"] - pd.Timedelta(microseconds=1)
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        joined(engine)
        with pytest.raises(BadRowsError, match="after its arrival"):
            engine.apply({"r": bad})
        with pytest.raises(BadRowsError, match="NULL in the key k"):
            engine.apply({"r": pa.table(rows(good)).to_pandas().assign(k=None).astype({"k": "Int64"})})
        engine.apply({"r": bad}, on_bad_rows="quarantine")
        assert engine.quarantine("r").num_rows == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "x"}, "has no column 'x'"),
        ({"on": "v"}, "not a key"),
        ({"time": "k"}, "not a time"),
        ({"arrival": "nowhere"}, "has no column"),
        ({"agg": "sum(name)"}, "has no column 'name'"),
        ({"agg": "sum(at)"}, "not a number"),
        ({"window": "-1 ms"}, "negative"),
        ({"emit_after": "0 ms"}, "before the window starts"),
        ({"estimator": "oracle"}, "not known"),
        ({"interval": 2.0}, "never or always"),
        ({"revisions": "some"}, "revisions='some'"),
        ({"within": "-1 ms"}, "within: the duration '-1 ms' is negative"),
        ({"by_key": "yes"}, "by_key='yes'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        with pytest.raises(SchemaError, match=said):
            joined(engine, **options)
        assert not engine.views


def test_tables_must_only_grow(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        engine.table("r", COLUMNS, append_only=True)
        engine.table("s", COLUMNS)
        with pytest.raises(SchemaError, match="append_only=True"):
            joined(engine)
        engine.table("t", COLUMNS.replace("k BIGINT", "k INT"), append_only=True)
        with pytest.raises(SchemaError, match="bigint in 'r' and int in 't'"):
            engine.window_join("pairs", "r", "t", on="k", time="at", arrival="came", window="10 ms")
        with pytest.raises(SchemaError, match="no table 'u'"):
            engine.window_join("pairs", "r", "u", on="k", time="at", arrival="came", window="10 ms")


def frames(spark: SparkSession, streams: list[Stream]) -> list[DataFrame]:
    return [spark.createDataFrame(rows(stream)) for stream in streams]


def test_bounded_frames_are_played_again(spark: SparkSession) -> None:
    streams = steady(300_000, rate=3_000)
    left, right = frames(spark, list(streams))
    asked = {"on": "k", "time": "at", "arrival": "came", "window": "10 ms", "horizon": "25 ms"}
    with hr.window_join(left, right, agg="sum(v)", revisions="final", **asked) as join:
        join.process_available()  # nothing is left to do
        final = join.to_df()
        assert join.to_arrow().num_rows == len(join.to_pandas()) == 30
    truth = recomputed(*streams, SPEC.length, SPEC.slide, 0)
    found = [row.asDict() for row in final.orderBy("window_start").collect()]
    assert len(found) == 30  # all of them: nothing more is to come
    for window, row in enumerate(found):
        assert row["value"] == pytest.approx(truth[window][3])
    columns = ["window_start", "window_end", "emitted_at", "value", "low", "high", "observed", "final"]
    assert final.columns == columns
    join = hr.window_join(left, right, by_key=True, **asked)
    assert join.to_arrow().num_rows == 30
    keys = join.by_key().to_pandas()
    assert keys.groupby("window_start")["value"].sum().tolist() == [numbers[2] for _, numbers in sorted(truth.items())]
    assert keys["final"].all()
    early = hr.window_join(left, right, emit_after="8 ms", estimator="delay", **asked).to_pandas()
    assert len(early) == 30  # and no more: of windows that have no row, there is nothing to tell at the end
    assert (early["value"] >= early["observed"]).all()
    assert not early["final"].any()
    assert ((early["low"] <= early["value"]) & (early["value"] <= early["high"])).all()


def test_streams_are_joined_as_they_come_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    streams = steady(300_000, rate=3_000)
    steps = batches(streams, 4)
    names = ("left", "right")
    for name in names:
        (tmp_path / name).mkdir()

    def made() -> hr.WindowJoinStream:
        schema = frames(spark, [streams[0].take([])])[0].schema
        read = [spark.readStream.schema(schema).parquet(str(tmp_path / name)) for name in names]
        return hr.window_join(*read, location=tmp_path / "state", **ASKED)

    for number, step in enumerate(steps):
        for name, some in zip(names, step, strict=True):
            table = rows(some)
            if number == 1 and name == "left":  # one that cannot be right
                bad = table.slice(0, 1).set_column(0, "k", pa.array([None], pa.int64()))
                table = pa.concat_tables([table, bad])
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
        with made() as stream:  # a new driver for every batch, as after a crash
            stream.process_available()
            found = stream.to_arrow().to_pylist()
            assert stream.changes().num_rows > 0
            assert stream.late().num_rows == stream.explain()["too_late"] == 0
            assert stream.quarantine().num_rows == (number >= 1)
    wanted = [answer for answer in expected(SPEC, steps) if not answer.final]
    assert [row["observed"] for row in found] == [answer.observed for answer in wanted]
    assert [row["value"] for row in found] == [
        pytest.approx(answer.estimates["auto"].value, rel=1e-6) for answer in wanted
    ]


def test_bounded_frames_have_room_where_they_are_told(spark: SparkSession, tmp_path: Path) -> None:
    left, right = frames(spark, steady(10_000))
    asked: dict[str, Any] = {"on": "k", "time": "at", "window": "10 ms", "arrival": "came"}
    with hr.window_join(left, right, location=tmp_path, **asked) as join:
        assert [path.name[:20] for path in tmp_path.iterdir()] == ["headrace-window-join"]
        found = join.to_pandas()
    assert not list(tmp_path.iterdir())
    with hr.window_join(left, right, **asked) as join:
        assert found["observed"].tolist() == join.to_pandas()["observed"].tolist()


def test_frames_that_make_no_sense_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = frames(spark, [stream.take([0, 1]) for stream in steady(10_000)])
    asked: dict[str, Any] = {"on": "k", "time": "at", "window": "10 ms"}
    with pytest.raises(SchemaError, match="no arrival times"):
        hr.window_join(left, right, **asked)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(spark.sparkContext, "master", "spark://host:7077")
        with pytest.raises(SchemaError, match="no room for its state that the workers of spark://host:7077 see"):
            hr.window_join(left, right, arrival="came", **asked)
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(StorageError, match="is a URL"):
        hr.window_join(left, right, arrival="came", location="ftp://host/rooms", **asked)
    with pytest.raises(SchemaError, match=r"one side .* is a stream"):
        hr.window_join(left, streaming, arrival="came", **asked)
    with pytest.raises(SchemaError, match="no location"):
        hr.window_join(streaming, streaming, on="value", time="timestamp", window="1 second")
    with pytest.raises(SchemaError, match=r"right side .* has no column 'came'"):
        hr.window_join(left, right.drop("came"), arrival="came", **asked)
    with pytest.raises(SchemaError, match="bigint on the left and string on the right"):
        hr.window_join(left, right.withColumn("k", right.k.cast("string")), arrival="came", **asked)
    renamed = [frame.withColumnRenamed("k", "value") for frame in (left, right)]
    with pytest.raises(SchemaError, match="uses itself"):
        hr.window_join(*renamed, arrival="came", **asked | {"on": "value"})
    with pytest.raises(SchemaError, match="no aggregate"):
        hr.window_join(left, right, arrival="came", agg="exec('x')", **asked)
