from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.bench.foreign.sliding_window import _agree, run, table
from headrace.cli.screen import out


def test_results_and_ratios(spark: SparkSession) -> None:
    size = ["--query", "q3", "--scale", "0.01", "--window", "10000", "--batch", "40000,20000"]
    result = run([*size, "--peers", "", "--strategies", "foreign-key,factorized", "--scales", "0.005,0.01"])
    by_case = {(row["system"], row["case"]): row for row in result["results"]}
    first = by_case["headrace", "steps of 40,000"]
    assert first["rows"] == by_case["headrace factorized", "steps of 20,000"]["rows"] == result["config"]["updates"]
    assert first["rows_per_s"] == pytest.approx(first["rows"] / first["seconds"])
    assert by_case["spark", "recompute once"]["rows"] < first["rows"]
    assert ("headrace", "scale 0.005, steps of 20,000") in by_case
    assert {"bytes of the view's state / tuple kept", "slope of time over updates (log-log)"} <= result["ratios"].keys()
    assert 10 < result["ratios"]["bytes of the view's state / tuple kept"] < 120
    out().print(table(result))


def test_a_peer_that_is_not_installed_is_a_row_that_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PEERS", "/nowhere")
    arguments = ["--query", "q7", "--scale", "0.002", "--window", "3000", "--batch", "5000", "--peers", "pathway"]
    result = run(arguments)
    [missing] = [row for row in result["results"] if row["system"] == "pathway"]
    assert "not installed" in missing["failed"]
    assert not any("pathway" in name for name in result["ratios"])
    out().print(table(result))


def test_answers_of_peers_agree_to_rounding_and_no_further() -> None:
    expected = pa.table({"n": ["A", "B"], "revenue": [Decimal("1.00"), Decimal("2.00")]})
    assert _agree([{"n": "B", "revenue": 2.0000000000001}, {"n": "A", "revenue": 1.0}], expected)
    assert not _agree([{"n": "B", "revenue": 2.001}, {"n": "A", "revenue": 1.0}], expected)
    assert not _agree([{"n": "A", "revenue": 1.0}], expected)
    assert not _agree([{"n": "C", "revenue": 2.0}, {"n": "A", "revenue": 1.0}], expected)
