"""Expressions evaluated in the driver's JVM give what a Spark job gives over the same rows, or its error."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from tests.sql.test_evaluate import QUERIES

from headrace.relation.types import SqlType
from headrace.sql.catalyst import AnalysedView, analyse
from headrace.sql.session import SqlSession

FURTHER = [
    "SELECT date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS EEE') AS x, regexp_replace(s, '[a-b]+', '<$0>') AS y FROM t",
    "SELECT get_json_object(concat('{\"a\":\"', s, '\"}'), '$.a') AS x, md5(s) AS y, hash(a, s, d) AS z FROM t",
    "SELECT reverse(s) AS x, soundex(s) AS y, levenshtein(s, 'abc') AS z, split(s, 'b')[0] AS w FROM t",
    "SELECT try_cast(s AS INT) AS x, aggregate(sequence(1, a * a + 1), 0, (u, v) -> u + v) AS y FROM t",
    "SELECT ts + INTERVAL '1' MONTH AS x, CAST(ts AS TIMESTAMP_NTZ) AS y, CAST(d AS STRING) AS z FROM t",
    "SELECT nullif(reverse(s), upper(s)) AS x, CASE WHEN soundex(s) BETWEEN 'A' AND 'B' THEN p END AS y FROM t",
]


def over(view: AnalysedView, table: DataFrame) -> tuple[dict[str, list[object]], dict[str, list[object]]]:
    """The map side of a view: as the driver evaluates it, and as a job does."""
    given = table.toArrow()
    strings = [(f.name, pa.large_string() if pa.types.is_string(f.type) else f.type) for f in given.schema]
    here = view.catalyst.map_values(given.cast(pa.schema(strings)), "t")
    by_job = table.select(*view.catalyst.map_columns(table)).toArrow()
    return {n: v.to_pylist() for n, v in here.items()}, {n: by_job[n].to_pylist() for n in by_job.column_names}


@pytest.mark.parametrize("sql", [*QUERIES, *FURTHER])
def test_the_driver_gives_what_a_job_gives(session: SqlSession, table: DataFrame, sql: str) -> None:
    here, by_job = over(analyse(session, "v", sql), table)
    assert repr(here) == repr(by_job)  # as texts, in which NaN is NaN and -0.0 is not 0.0


def test_rows_are_evaluated_a_part_at_a_time(session: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    view = analyse(session, "v", "SELECT reverse(s) AS x FROM t")
    rows = pa.table({"s": pa.array(["ab", "cd", None, "", "ef"], pa.large_string())})
    whole = view.catalyst.map_values(rows, "t")
    monkeypatch.setattr("headrace.sql.projection._ROWS", 2)
    assert view.catalyst.map_values(rows, "t") == whole
    assert whole["k0"].to_pylist() == ["ba", "dc", None, "", "fe"]


def memory(spark: SparkSession) -> int:
    return int(spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())


def test_an_error_is_sparks_and_leaves_no_memory_behind(spark: SparkSession, session: SqlSession) -> None:
    view = analyse(session, "v", "SELECT reverse(s) AS x, 10 / b AS y FROM t")
    rows = pa.table({"b": pa.array([1, 0], pa.int64()), "s": pa.array(["ab", "c"], pa.large_string())})
    before = memory(spark)
    with pytest.raises(ArithmeticException) as here:
        view.catalyst.map_values(rows, "t")
    assert memory(spark) == before
    frame = spark.createDataFrame(rows, "b bigint, s string")
    with pytest.raises(ArithmeticException) as by_job:
        frame.select(*view.catalyst.map_columns(frame)).collect()
    assert str(here.value) == str(by_job.value)
    good = view.catalyst.map_values(rows.slice(0, 1), "t")
    assert [value.to_pylist() for value in good.values()] == [["ba"], [10.0]]
    assert memory(spark) == before


def test_null_where_none_may_be_is_null(session: SqlSession) -> None:
    view = analyse(session, "v", "SELECT b + 1 AS x, coalesce(b, 7) AS y FROM t WHERE q IS NOT NULL")
    rows = pa.table({"b": pa.array([None, 2], pa.int64()), "q": pa.array([None, None], pa.decimal128(4, 2))})
    assert view.catalyst.map_values(rows, "t")["k0"].to_pylist() == [None, 3]


def test_no_rows_and_no_columns(session: SqlSession) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3], pa.int32())})
    constant = analyse(session, "v", "SELECT 'x' AS x, COUNT(*) FROM t GROUP BY 'x', a")
    assert {len(value) for value in constant.catalyst.map_values(rows, "t").values()} == {3}
    assert {len(value) for value in constant.catalyst.map_values(rows.slice(0, 0), "t").values()} == {0}
    assert analyse(session, "v", "SELECT COUNT(*) FROM t").catalyst.map_values(rows, "t") == {}


def test_settings_are_those_of_the_views_session(spark: SparkSession) -> None:
    tokyo = SqlSession(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"})
    tokyo.register("t", [("ts", SqlType.parse("timestamp"), True)])
    view = analyse(tokyo, "v", "SELECT date_format(ts, 'HH:mm') AS h FROM t")
    noon = pa.table({"ts": pa.array([43_200_000_000], pa.timestamp("us", "UTC"))})
    before = SparkSession.getActiveSession()
    assert view.catalyst.map_values(noon, "t")["k0"].to_pylist() == ["21:00"]
    active = spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession()
    assert before is not None
    assert active.get().equals(before._jsparkSession)
