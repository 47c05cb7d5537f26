"""The benchmark of starts, with processes that start at once."""

import pytest

from headrace.bench.start import first_view
from headrace.errors import HeadraceError


def test_it_measures_each_kind_of_process_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"a bare SparkSession": 0.0, "Spark: sums": 0.3, "Headrace": 0.6}
    code = {name: f"import sys, time\nassert sys.argv[1]\ntime.sleep({wait})\n" for name, wait in waits.items()}
    monkeypatch.setattr(first_view, "CASES", code)
    stages: list[str] = []
    result = first_view.run(["--repeat", "2"], stages.append)
    assert stages == ["reading everything once", "turn 1 of 2", "turn 2 of 2"]
    bare, sums, headrace = (row["seconds"] for row in result["results"])
    assert bare < sums < headrace
    assert result["ratios"]["Headrace / a bare SparkSession"] == headrace / bare
    assert first_view.table(result).renderables


def test_a_process_that_fails_is_an_error_and_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_view, "CASES", {"broken": "raise ValueError('no Java')\n"})
    with pytest.raises(HeadraceError, match="no Java"):
        first_view.run(["--repeat", "1"])


def test_what_the_processes_do_is_python() -> None:
    for name, code in first_view.CASES.items():
        compile(code, name, "exec")
