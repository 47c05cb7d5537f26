"""`headrace data`: the files it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headrace.cli import screen
from headrace.cli.main import app
from headrace.datasets import DATASETS, fifo_updates, stream, tpch_tables
from headrace.sources import UpdateFile

HOUSING = DATASETS["housing"]
SCALE = 0.004


@pytest.fixture(autouse=True)
def fresh_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    screen.out.cache_clear()
    screen.err.cache_clear()


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_it_writes_a_file_a_table(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    done = invoke("housing", "--scale", SCALE, "--out", target, "--seed", 3)
    assert done.exit_code == 0, done.output
    expected = HOUSING.generate(SCALE, seed=3)
    assert {path.name for path in target.iterdir()} == {f"{name}.parquet" for name in expected}
    for name, table in expected.items():
        assert pq.read_table(target / f"{name}.parquet") == table
        assert name in done.stdout
    assert "600" in done.stdout, "all rows together"
    assert "writing house" in done.stderr


def test_it_writes_numbered_change_batches(tmp_path: Path) -> None:
    done = invoke("housing", "--scale", SCALE, "--out", tmp_path, "--batch", 90, "--deletes", 0.2, "--json")
    assert done.exit_code == 0, done.output
    expected = list(stream(HOUSING.generate(SCALE), 90, 0.2))
    for table in HOUSING.tables:
        files = sorted((tmp_path / table.name).iterdir())
        numbers = [number for number, changes in enumerate(expected, start=1) if table.name in changes]
        assert [path.name for path in files] == [f"batch-{number:05d}.parquet" for number in numbers]
        for number, path in zip(numbers, files, strict=True):
            assert pq.read_table(path) == expected[number - 1][table.name]
    printed = json.loads(done.stdout)
    assert (printed["dataset"], printed["batch"], printed["deletes"]) == ("housing", 90, 0.2)
    house = printed["tables"]["house"]
    assert house["rows"] == sum(changes["house"].num_rows for changes in expected)
    assert house["files"] == len(list((tmp_path / "house").iterdir()))
    assert house["bytes"] == sum(path.stat().st_size for path in (tmp_path / "house").iterdir())
    assert (house["ddl"], house["key"]) == (HOUSING.table("house").ddl, [])
    assert printed["rows"] == sum(table["rows"] for table in printed["tables"].values())


def test_a_folder_with_something_in_it_is_refused_without_force(tmp_path: Path) -> None:
    assert invoke("housing", "--scale", SCALE, "--out", tmp_path, "--batch", 50).exit_code == 0
    (tmp_path / "mine.txt").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    done = invoke("housing", "--scale", SCALE, "--out", tmp_path)
    assert (done.exit_code, "is not empty" in done.stderr, "--force" in done.stderr) == (1, True, True)
    assert sorted(tmp_path.rglob("*")) == before
    assert invoke("housing", "--scale", SCALE, "--out", tmp_path, "--force").exit_code == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"mine.txt", *(f"{table.name}.parquet" for table in HOUSING.tables)}, "old batches are gone"


def test_lists(tmp_path: Path) -> None:
    done = invoke()
    assert done.exit_code == 0
    assert all(name in done.stdout for name in DATASETS)
    assert set(json.loads(invoke("--json").stdout)) == {*DATASETS, "updates"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["houses", "--out", "x"], "housing, retailer"),
        (["housing"], "--out"),
        (["housing", "--out", "x", "--deletes", "0.1"], "--batch"),
        (["housing", "--out", "x", "--scale", "-1"], "scale"),
        (["housing", "--out", "x", "--window", "10"], "headrace data updates"),
        (["updates"], "--out"),
        (["updates", "--out", "x", "--batch", "10"], "--window"),
        (["updates", "--out", "x", "--scale", "0"], "scale"),
        (["updates", "--out", "."], "is a folder"),
        (["updates", "--out", "no/such/folder/x", "--scale", "0.001"], "cannot be written"),
        (["housing", "--out", "x", "--scale", "0.001", "--batch", "9", "--deletes", "1"], "below 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert (done.exit_code, message in done.stderr, "->" in done.stderr) == (1, True, True), done.output
    assert "Traceback" not in done.output
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    assert set(json.loads(invoke(*arguments, "--json").stdout)) == {"error", "way_out"}


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a folder" in invoke("housing", "--scale", SCALE, "--out", tmp_path / "file").stderr


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(table: pa.Table, path: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(pq, "write_table", full)
    done = invoke("housing", "--scale", SCALE, "--out", tmp_path / "out")
    assert (done.exit_code, "No space left" in done.stderr, "free space" in done.stderr) == (1, True, True)


def test_it_writes_a_file_of_updates(tmp_path: Path) -> None:
    file = tmp_path / "updates.txt"
    arguments = ("updates", "--scale", 0.001, "--window", 100, "--out", file, "--drain", "--shuffle", "--seed", 3)
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    expected = fifo_updates(tpch_tables(0.001), 100, shuffle=3, drain=True)
    assert list(UpdateFile(file, batch=5_000)) == list(expected.batches(5_000))
    assert "lineitem     6,005     6,005" in done.stdout
    assert f"writing {expected.total:,} updates" in done.stderr
    before = file.read_bytes()
    again = invoke(*arguments)
    assert (again.exit_code, "exists" in again.stderr, "--force" in again.stderr) == (1, True, True)
    printed = json.loads(invoke(*arguments, "--force", "--json").stdout)
    assert file.read_bytes() == before
    assert printed["tables"]["orders"] == {"inserts": 1_500, "deletes": 1_500}
    counted = (printed["updates"], printed["inserts"] + printed["deletes"], printed["bytes"])
    assert counted == (expected.total, expected.total, len(before))
    assert (printed["window"], printed["shuffle"], printed["late"], printed["out"]) == (100, 3, False, str(file))
