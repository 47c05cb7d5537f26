"""What each command prints and how it ends, against a fake engine; the real one is tested where it lives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.table import Table
from typer.testing import CliRunner

import headrace.errors
from headrace.cli import screen
from headrace.cli.main import app
from headrace.engine import looking
from headrace.engine.spark_needed import SparkNeeded
from headrace.errors import HeadraceError

SOURCES = str(Path(headrace.errors.__file__).parent.parent)
COMMANDS = ["demo", "run", "read", "explain", "status", "bench", "data"]


@pytest.fixture(autouse=True)
def fresh_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test's captured streams be found anew, and wide enough that nothing is cut."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    screen.out.cache_clear()
    screen.err.cache_clear()


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_help_lists_the_commands_without_loading_spark() -> None:
    program = (
        "import sys, typer.testing; from headrace.cli.main import app\n"
        "print(typer.testing.CliRunner().invoke(app, ['--help']).output)\n"
        "print([name for name in ('pyspark', 'numpy', 'pyarrow', 'numba', 'pandas') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    done = invoke(command, "--help")
    assert done.exit_code == 0
    assert "--json" in done.output


@pytest.mark.parametrize("command", [("status",), ("explain", "v"), ("read", "v")])
def test_looking_at_a_missing_location_creates_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *rest = command
    missing = tmp_path / "nothing"
    done = invoke(name, missing, *rest)
    assert done.exit_code == 1
    assert "There is no Headrace state" in done.stderr
    assert "->" in done.stderr
    assert "Traceback" not in done.output
    assert not missing.exists()
    as_json = invoke(name, missing, *rest, "--json")
    assert as_json.exit_code == 1
    assert set(json.loads(as_json.stdout)) == {"error", "way_out"}


def test_debugging_shows_the_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    assert isinstance(invoke("status", tmp_path / "nothing").exception, HeadraceError)


def test_status(fake: Any) -> None:
    fake.table("sales", "id BIGINT", key=("id",))
    fake.view("by_shop", "SELECT [shop] FROM sales")
    done = invoke("status", fake.location)
    assert done.exit_code == 0, done.output
    assert all(
        text in done.stdout for text in ("sales", "by_shop", "SELECT [shop]", "1.5 MB", "step 0", "step 9: 4 rows")
    )
    assert json.loads(invoke("status", fake.location, "--json").stdout) == json.loads(json.dumps(fake.status()))
    assert fake.calls == ["close", "close"]


def test_status_verify(fake: Any) -> None:
    assert "sound" in invoke("status", fake.location, "--verify").stdout
    fake.problems = ["run 3 is damaged"]
    done = invoke("status", fake.location, "--verify")
    assert (done.exit_code, "run 3 is damaged" in done.stdout) == (1, True)
    as_json = invoke("status", fake.location, "--verify", "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["problems"]) == (1, ["run 3 is damaged"])


def test_status_says_what_the_next_step_costs(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {
        "budget": 2_000_000,
        "kept_bytes": 3_500_000,
        "over_bytes": 1_500_000,
        "over_because": [{"view": "daily", "bytes": 1_600_000, "why": "it has a goal"}],
        "dropped_bytes": 400_000,
        "dropped": [{"view": "v", "operator": 0, "what": "left rows", "entries": 1_000, "bytes": 400_000}],
        "expected": {"orders": [1_000.0, 0.0], "shops": [5.0, 2.0]},
        "expected_by": "source",
        "announced": {"a": {"orders": [1_000.0, 0.0]}, "b": {"shops": [5.0, 2.0]}},
        "idle": [],
        "prediction_error": 0.125,
        "next_step_seconds": 0.25,
        "next_step_seconds_if_all_were_kept": 0.0625,
    }
    plain = fake.status()
    monkeypatch.setattr(fake, "status", lambda: plain | {"memory": memory})
    lines = invoke("status", fake.location).stdout.splitlines()
    assert lines[-2:] == [
        "memory: 3.5 MB kept of a budget of 2.0 MB, 0.4 MB dropped; the next step takes about 0.250 s of work, "
        "0.062 s if everything were kept; expected next: 1,000 rows of orders, 5 rows and 2 deleted of shops (as "
        "announced by a, b); expectations were off by 12% on average",
        "memory: over the budget by 1.5 MB, because daily keeps all of its 1.6 MB: it has a goal",
    ]
    memory |= {"expected_by": "history", "announced": {}, "over_because": [], "prediction_error": None}
    lines = invoke("status", fake.location).stdout.splitlines()
    assert lines[-2].endswith("2 deleted of shops (from what has come lately)")
    assert lines[-1] == "memory: over the budget by 1.5 MB, until the next step chooses what is kept"
    memory |= {"budget": None, "over_bytes": 0}
    assert "memory" not in invoke("status", fake.location).stdout


def test_explain(fake: Any) -> None:
    fake.view("v", "SELECT 1")
    assert invoke("explain", fake.location, "v").stdout == "groups by [shop]\n"
    assert json.loads(invoke("explain", fake.location, "v", "--json").stdout) == {"strategy": "groups"}
    unknown = invoke("explain", fake.location, "w")
    assert (unknown.exit_code, "views there are: v" in unknown.stderr) == (1, True)
    assert invoke("explain", fake.location).stdout == "1 view, nothing shared\n"
    of_all = invoke("explain", fake.location, "--cost")
    assert (of_all.exit_code, "Name a view" in of_all.stderr) == (1, True)


def test_read(fake: Any) -> None:
    fake.view("v", "SELECT 1")
    done = invoke("read", fake.location, "v")
    assert done.exit_code == 0, done.output
    assert all(text in done.stdout for text in ("v  (2 rows)", "shop", "NULL"))
    rows = {"rows": 2, "first": [{"shop": "a", "sales": 1}]}
    assert json.loads(invoke("read", fake.location, "v", "--limit", 1, "--json").stdout) == rows
    unknown = invoke("read", fake.location, "w")
    assert (unknown.exit_code, "views there are: v" in unknown.stderr) == (1, True)


def test_spark_is_started_only_with_a_reason(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.view("v", "SELECT 1")
    quick = invoke("read", fake.location, "v")
    assert quick.stderr == ""

    def look(location: Path) -> None:
        raise SparkNeeded("the plan of view v is not stored")

    monkeypatch.setattr(looking, "Look", look)
    slow = invoke("read", fake.location, "v")
    assert slow.stderr == "Starting Spark, because the plan of view v is not stored ...\n"
    assert slow.stdout == quick.stdout


def test_every_view_is_drawn(fake: Any, tmp_path: Path) -> None:
    fake.view("v", "SELECT 1")
    drawing = tmp_path / "v.svg"
    assert invoke("explain", fake.location, "v", "--svg", drawing).exit_code == 0
    assert drawing.read_text() == "<svg/>"
    refused = invoke("explain", fake.location, "v", "--analyze")
    assert (refused.exit_code, "no view of SQL" in refused.stderr) == (1, True)


def test_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    module = ModuleType("headrace.bench.step.one_table")
    module.run = lambda argv, tell: seen.append(argv) or {"bench": "step"}  # type: ignore[attr-defined]
    module.table = lambda result: Table(result["bench"] + " table")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace.bench.step.one_table", module)
    done = invoke("bench", "step", "--rows", "10", "--json", "--fast")
    assert (json.loads(done.stdout), seen) == ({"bench": "step"}, [["--rows", "10", "--fast"]])
    assert "step table" in invoke("bench", "step").stdout
    assert "step" in invoke("bench").stdout
    unknown = invoke("bench", "os")
    assert (unknown.exit_code, "The benchmarks are: " in unknown.stderr) == (1, True)


@pytest.mark.parametrize("argv", [("--figure", "20..22", "27"), ("--", "--figure", "20..22", "27")])
def test_options_of_a_benchmark_need_no_dashes_before_them(
    monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    seen: list[list[str]] = []
    module = ModuleType("headrace.bench.paper.figures")
    module.run = lambda argv, tell: seen.append(argv) or {"bench": "paper"}  # type: ignore[attr-defined]
    module.table = lambda result: Table("paper")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace.bench.paper.figures", module)
    done = invoke("bench", "paper", *argv)
    assert (done.exit_code, seen) == (0, [["--figure", "20..22", "27"]])


PIPELINE = """
CREATE TABLE sales (id BIGINT, a INT, b INT, shop STRING, PRIMARY KEY (id), FOREIGN KEY (a, b) REFERENCES other)
USING csv OPTIONS (path 'in', changes 'true', header 'true');
CREATE MATERIALIZED VIEW by_shop AS SELECT shop, count(*) AS sales FROM sales GROUP BY shop;
"""


class FakeReader:
    """Records what a source was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def format(self, name: str) -> FakeReader:
        return self._with(format=name)

    def options(self, **options: str) -> FakeReader:
        return self._with(options=options)

    def schema(self, ddl: str) -> FakeReader:
        return self._with(schema=ddl)

    def load(self, path: str | None = None) -> Any:
        self.asked["path"] = path
        return SimpleNamespace(schema=None)

    def _with(self, **asked: Any) -> FakeReader:
        self.asked.update(asked)
        return self


@pytest.fixture
def pipeline(fake: Any, tmp_path: Path) -> Path:
    fake.spark = SimpleNamespace(readStream=FakeReader(), streams=SimpleNamespace(active=[1]))
    file = tmp_path / "shop.sql"
    file.write_text(PIPELINE)
    return file


def test_run_available_now(fake: Any, pipeline: Path) -> None:
    done = invoke("run", pipeline, "--available-now")
    assert done.exit_code == 0, done.output
    assert "by_shop  (2 rows)" in done.stdout
    assert "NULL" in done.stdout
    assert fake.tables["sales"].key == ("id",)
    assert fake.tables["sales"].references == {("a", "b"): "other"}
    assert fake.spark.readStream.asked == {
        "format": "csv",
        "options": {"header": "true"},
        "schema": "id BIGINT, a INT, b INT, shop STRING, __diff BIGINT",
        "path": str(pipeline.parent / "in"),
    }
    assert fake.streams["sales"][1] == "sales"
    again = json.loads(invoke("run", pipeline, "--available-now", "--json").stdout)
    first = [{"shop": "a", "sales": 1}, {"shop": None, "sales": 2}]
    assert again == {"step": 2, "views": {"by_shop": {"rows": 2, "first": first}}}


def test_run_refuses_another_definition_unless_it_replaces(fake: Any, pipeline: Path) -> None:
    fake.view("by_shop", "SELECT 1")
    done = invoke("run", pipeline, "--available-now")
    assert (done.exit_code, "another query" in done.stderr) == (1, True)
    pipeline.write_text(PIPELINE.replace("CREATE MATERIALIZED", "CREATE OR REPLACE MATERIALIZED"))
    assert invoke("run", pipeline, "--available-now").exit_code == 0
    assert "count(*)" in fake.views["by_shop"].sql


def test_run_refuses_a_bad_pipeline_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "bad.sql"
    file.write_text("DROP TABLE [x]")
    done = invoke("run", file)
    assert done.exit_code == 1
    assert "DROP TABLE [x]" in done.stderr, "brackets are text, not markup"
    assert "Starting Spark" not in done.stderr


def test_run_refuses_an_unclear_changes_option(pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("changes 'true'", "changes 'maybe'"))
    done = invoke("run", pipeline, "--json")
    assert (done.exit_code, "'maybe'" in json.loads(done.stdout)["error"]) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_stops_cleanly_on_a_signal(number: signal.Signals, fake: Any, pipeline: Path) -> None:
    def kill_when_started() -> None:
        while "start" not in fake.calls:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), number)

    threading.Thread(target=kill_when_started).start()
    done = invoke("run", pipeline, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[0])["step"] == 0
    assert fake.calls == ["start", "stop", "close"]


def test_run_tells_when_its_sources_have_ended(fake: Any, pipeline: Path) -> None:
    fake.spark.streams.active = []
    done = invoke("run", pipeline)
    assert (done.exit_code, "have stopped" in done.stderr) == (1, True)
    assert fake.calls == ["start", "stop", "close"]


def test_demo_wants_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = invoke("demo", "--location", tmp_path)
    assert (done.exit_code, "not an empty folder" in done.stderr) == (1, True)
