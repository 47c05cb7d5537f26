"""What is wrong with a location or an option is found before Spark starts, and leaves no trace."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine.looking import Look
from headrace.engine.meanwhile import Meanwhile
from headrace.engine.opening import location_at
from headrace.engine.repair import problems, repair
from headrace.errors import CorruptFileError, SchemaError, StorageError
from headrace.runtime import session
from headrace.runtime.location import Location, _checksum

ENTRANCES: dict[str, Callable[[str], Any]] = {
    "connect": hr.connect,
    "read_only": lambda url: hr.connect(url, read_only=True),
    "look": Look,
    "verify": problems,
    "repair": repair,
}
COMMANDS = {
    "headrace run": ["run", "pipeline.sql", "--location"],
    "headrace demo": ["demo", "--location"],
    **{f"headrace {name}": [name] for name in ("read", "status", "explain", "verify", "repair")},
}


class Started(Exception):
    """Spark would have been started."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**_: object) -> None:
        raise Started

    monkeypatch.setattr(session, "local_session", start)
    monkeypatch.setattr(Meanwhile, "start", lambda self: None)


def made(root: Path, buckets: int = 4) -> Path:
    """A location without tables."""
    Location(root).create(buckets, {})
    return root


def test_a_file_is_no_location(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for location in (file, file / "state"):
        with pytest.raises(StorageError, match="is a file"):
            hr.connect(location)
    assert file.read_text() == "mine"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a Headrace location"):
        hr.connect(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("url", ["ftp://host/state", "abfss://box@account/state", "made-up://x/y", "smb://host/state"])
@pytest.mark.parametrize("entrance", ["connect", "read_only", "look", "verify", "repair", *COMMANDS])
def test_no_entrance_makes_a_folder_of_a_url(
    entrance: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pipeline.sql").write_text("CREATE TABLE t (k BIGINT) USING parquet OPTIONS (path 'rows');")
    if entrance in COMMANDS:
        done = CliRunner().invoke(app, [*COMMANDS[entrance], url, *(["v"] if entrance == "headrace read" else [])])
        assert done.exit_code != 0
        assert "is a URL" in " ".join(done.output.split())
    else:
        with pytest.raises(StorageError, match="is a URL"):
            ENTRANCES[entrance](url)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.sql"]


def test_a_url_of_a_file_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (f"file://{tmp_path}/a b", f"file://{tmp_path}/a%20b", Path(f"file://{tmp_path}/a b")):
        assert location_at(given).root == tmp_path / "a b"
    assert location_at("odd:/x").root == location_at(tmp_path / "odd:" / "x").root == tmp_path / "odd:" / "x"
    assert list(tmp_path.iterdir()) == []


def test_a_locked_location_is_refused_unless_it_is_only_read(tmp_path: Path) -> None:
    holder = Location(made(tmp_path / "s"))
    holder.lock()
    with pytest.raises(StorageError, match=f"open in another engine .process {os.getpid()}"):
        hr.connect(tmp_path / "s")
    with pytest.raises(Started):
        hr.connect(tmp_path / "s", read_only=True)
    holder.unlock()
    with pytest.raises(Started):
        hr.connect(tmp_path / "s")


def test_only_reading_needs_a_location(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a Headrace location"):
        hr.connect(tmp_path / "s", read_only=True)
    with pytest.raises(Started):
        hr.connect(tmp_path / "s")
    assert list(tmp_path.iterdir()) == [], "checking makes nothing"


def test_a_damaged_location_is_refused(tmp_path: Path) -> None:
    (made(tmp_path / "s") / "headrace.json").write_text("{")
    with pytest.raises(CorruptFileError, match="cannot be read"):
        hr.connect(tmp_path / "s")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="may not write"):
            hr.connect(tmp_path / "s")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"buckets": 0}, "out of range"),
        ({"buckets": 5000}, "out of range"),
        ({"driver_rows": -1}, "driver_rows=-1 is out of range"),
        ({"buckets": 8}, "has 4 buckets, not 8"),
        ({"executor": "yarn"}, "executor='yarn' is not known"),
        ({"on_bad_rows": "skip"}, "on_bad_rows='skip' is not known"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=says):
        hr.connect(made(tmp_path / "s"), **options)


def test_an_unknown_option(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="bucket"):
        hr.connect(tmp_path / "s", bucket=4)


def test_the_right_number_of_buckets(tmp_path: Path) -> None:
    with pytest.raises(Started):
        hr.connect(made(tmp_path / "s"), buckets=4)


def test_all_options_of_an_engine_may_be_given() -> None:
    ours, theirs = (inspect.signature(call).parameters for call in (hr.connect, hr.Engine))
    options = [name for name, parameter in theirs.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert {name: ours[name] for name in options} == {name: theirs[name] for name in options}


def test_a_wrong_location_is_refused_at_once(tmp_path: Path) -> None:
    program = (
        "import sys, headrace as hr\n"
        "try:\n    hr.connect('ftp://host/state')\n"
        "except hr.StorageError:\n"
        "    print([name for name in ('pyspark', 'numpy', 'pyarrow', 'numba', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_spark_connect_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(SchemaError, match="the session is of Spark Connect") as caught:
        hr.Engine(connect(), tmp_path / "s")
    assert "SPARK_REMOTE" in caught.value.way_out
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(SchemaError, match="the left DataFrame of the window join is of Spark Connect"):
        hr.window_join(frame, frame, on="k", time="t", window="1 second")
    monkeypatch.undo()  # `local_session` is the real one again
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", classmethod(lambda cls: None))
    with pytest.raises(SchemaError, match="SPARK_REMOTE asks for"):
        session.local_session()
    assert not (tmp_path / "s").exists()


def test_folders_that_are_links_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "s")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "mine.run").write_text("keep me")
    (tmp_path / "s" / "runs").rmdir()
    (tmp_path / "s" / "runs").symlink_to(tmp_path / "else")
    with pytest.raises(StorageError, match="runs is no folder of its own"):
        hr.connect(tmp_path / "s")
    assert (tmp_path / "else" / "mine.run").read_text() == "keep me"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    made(tmp_path / "s")
    (tmp_path / "mine").write_text("keep me")
    (tmp_path / "s" / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(StorageError, match="lock cannot be opened"):
        hr.connect(tmp_path / "s")
    assert (tmp_path / "mine").read_text() == "keep me"


@pytest.mark.parametrize(
    "changed",
    [{"buckets": 0}, {"buckets": 10**9}, {"buckets": "4"}, {"seed": -1}, {"sql": {"spark.jars": "x"}}, {"sql": 7}],
)
def test_settings_that_no_location_has_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = made(tmp_path / "s") / "headrace.json"
    data = json.loads(path.read_text())
    data.pop("crc")
    data |= changed
    path.write_text(json.dumps(data | {"crc": _checksum(data)}))
    with pytest.raises(CorruptFileError, match=r"headrace.json cannot be read"):
        hr.connect(tmp_path / "s")
