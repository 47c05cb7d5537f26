"""Damaged and crafted locations: the right answer or a clear error; never a wrong answer, a crash or a hang, and
nothing outside of the folder is touched. `make fuzz CASES=10000` tries more of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.fuzz.child import said
from tests.seeds import seeds

import headrace as hr

CASES = int(os.environ.get("HEADRACE_FUZZ", "120"))
ROOT = Path(__file__).parents[2]


def rows(first: int, count: int, diff: int = 1) -> pa.Table:
    ids = np.arange(first, first + count)
    columns = {"id": ids, "shop": ids % 7, "day": ids % 30, "price": ids * 37 % 101}
    texts = pa.array([f"kind {i % 5}" if i % 11 else None for i in ids.tolist()], pa.string())
    return pa.table(columns | {"kind": texts, "weight": ids / 8, "__diff": np.full(count, diff)})


def note(engine: hr.Engine, answers: dict[str, dict[str, list[str]]]) -> None:
    handles: dict[str, Any] = {**engine.tables, **engine.views}
    answers.setdefault(str(engine.step), {}).update({name: said(handle) for name, handle in handles.items()})


def make_location(spark: SparkSession, folder: Path) -> None:
    """A location with views of every kind, runs small and large, rows that were set aside, and a log of some steps."""
    answers: dict[str, dict[str, list[str]]] = {}
    with hr.Engine(spark, folder / "location", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("orders", "id BIGINT, shop BIGINT, day BIGINT, price BIGINT, kind STRING, weight DOUBLE", key="id")
        engine.table("shops", "shop BIGINT, city STRING", key="shop")
        engine.table("left_side", "k BIGINT, at TIMESTAMP, arrival TIMESTAMP", append_only=True)
        engine.table("right_side", "k BIGINT, at TIMESTAMP, arrival TIMESTAMP", append_only=True)
        note(engine, answers)
        engine.apply({"orders": rows(0, 20_000), "shops": pa.table({"shop": [0, 1, 2, 3], "city": list("abca")})})
        note(engine, answers)
        engine.compact()
        join = "FROM orders JOIN shops USING (shop)"
        engine.view(
            "by_shop", "SELECT shop, COUNT(*) AS n, SUM(price) AS s, MAX(weight) AS m FROM orders GROUP BY shop"
        )
        engine.view("by_city", f"SELECT city, kind, SUM(price) AS total {join} GROUP BY city, kind")
        engine.view("few", f"SELECT id, city, kind {join} WHERE price = 50 AND day < 3", strategy="operators")
        engine.view("top", "SELECT id, price FROM orders ORDER BY price DESC, id LIMIT 5")
        engine.view("product", f"SELECT id, shop, city {join} WHERE day = 7", representation="factorized")
        engine.model("line", hr.LinearRegression(label="price"), over=f"SELECT price, weight, kind {join}")
        engine.model("tree", hr.ChowLiuTree(features=["city", "kind"]), over=f"SELECT city, kind {join}")
        engine.view("waits", "SELECT day, SUM(price) AS total FROM orders GROUP BY day", goal=hr.Manual())
        engine.window_join(
            "met", "left_side", "right_side", on="k", time="at", arrival="arrival", window="100 milliseconds"
        )
        note(engine, answers)
        for step in range(6):
            changes = {"orders": pa.concat_tables([rows(30_000 + 40 * step, 40), rows(100 * step, 15, -1)])}
            if step % 2:
                at = 1000 * np.arange(200 * step, 200 * step + 200, 2)
                times = [pa.array(moment).cast(pa.timestamp("us", "UTC")) for moment in (at, at + 3000)]
                side = pa.table({"k": at // 2000 % 5, "at": times[0], "arrival": times[1]})
                changes |= {"left_side": side, "right_side": side}
            if step == 3:
                changes["orders"] = pa.concat_tables([changes["orders"], rows(30_000, 1)])  # it is there
            engine.apply(changes, on_bad_rows="quarantine")
            note(engine, answers)
        engine.refresh("waits")
        note(engine, answers)
        engine.apply({"orders": rows(50_000, 10)})
        note(engine, answers)
    (folder / "answers.json").write_text(json.dumps(answers))


def played(folder: Path, first: int, count: int, seed: int) -> list[dict[str, Any]]:
    """Try some cases; a case in which the process dies is a failure of its own, and the next one goes on."""
    results: list[dict[str, Any]] = []
    last = first + count
    while first < last:
        command = [sys.executable, "-m", "tests.fuzz.child", str(folder), str(first), str(last - first), str(seed)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
        lines = done.stdout.splitlines()
        results += [json.loads(line) for line in lines if line.startswith("{")]
        begun = [int(line.split()[1]) for line in lines if line.startswith("case ")]
        if done.returncode == 0:
            break
        if not begun:
            raise AssertionError(done.stderr[-3000:])
        died = {"case": begun[-1], "outcome": "died", "error": f"exit code {done.returncode}: {done.stderr[-1000:]}"}
        results.append(died)
        first = begun[-1] + 1
    return results


@pytest.mark.timeout(300 + 3 * CASES)
@seeds("damaged locations", 1)
def test_a_damaged_location_is_right_or_refused(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    make_location(spark, tmp_path)
    results = played(tmp_path, 0, CASES, seed)
    shutil.rmtree(tmp_path / "case", ignore_errors=True)
    outcomes = Counter(result["outcome"] for result in results)
    print(f"{CASES:,} damaged locations: {dict(outcomes)}")
    wrong = [result for result in results if result["outcome"] in ("failed", "died")]
    assert not wrong, json.dumps(wrong[:5], indent=1).replace("\\n", "\n")
    assert len(results) == CASES
    assert outcomes["unclear"] <= CASES / 30
    # Otherwise the damage would mostly be where nobody looks, or all of it would be seen at once.
    assert min(outcomes["refused"], outcomes["answered"]) > CASES / 10


def test_a_location_that_is_not_damaged_answers(spark: SparkSession, tmp_path: Path) -> None:
    from tests.fuzz.child import examine

    make_location(spark, tmp_path)
    truth = json.loads((tmp_path / "answers.json").read_text())
    for step, answers in examine(tmp_path / "location"):
        assert answers == truth[str(step)]
        assert len(answers) == 13


@pytest.mark.parametrize("made", [0o700, 0o750, 0o755])
def test_files_are_as_private_as_their_folder(spark: SparkSession, tmp_path: Path, made: int) -> None:
    if made != 0o700:
        (tmp_path / "s").mkdir()
        (tmp_path / "s").chmod(made)
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.table("t", "id BIGINT", key="id")
        engine.view("v", "SELECT COUNT(*) AS n FROM t")
        engine.apply({"t": pa.table({"id": range(100)})})
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in (tmp_path / "s").rglob("*")}
    assert modes == {True: made, False: made & 0o666}
    assert (tmp_path / "s").stat().st_mode & 0o777 == made


def test_a_location_whose_making_was_interrupted_is_made(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("log", "runs"):
        (tmp_path / "s" / folder).mkdir(parents=True)
    (tmp_path / "s" / ".headrace.json.0").write_text("{")
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        engine.table("t", "id BIGINT", key="id")
    assert not (tmp_path / "s" / ".headrace.json.0").exists()
    (tmp_path / "other" / "log").mkdir(parents=True)
    (tmp_path / "other" / "log" / "mine.txt").write_text("not Headrace's")
    with pytest.raises(hr.StorageError, match="is not a Headrace location"):
        hr.Engine(spark, tmp_path / "other")
