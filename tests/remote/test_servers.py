"""Locations on a server that speaks S3, and on HDFS: with Spark's workers, several processes, and failing requests.

`make remote-test` installs the servers and runs this; without them it is left out.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.seeds import drawn

import headrace as hr
from headrace.engine.looking import Look
from headrace.engine.repair import problems
from headrace.errors import StorageError
from headrace.remote import objects, room, store
from headrace.remote.objects import options_of

HERE = Path(__file__).parent
SERVERS = HERE.parent.parent / ".servers"
S3_PYTHON, HDFS_JARS = SERVERS / "s3" / "bin" / "python", SERVERS / "hdfs"
FAST = timedelta(milliseconds=5)
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "very-secret-indeed"}

pytestmark = pytest.mark.skipif("HEADRACE_SERVERS" not in os.environ, reason="asked for by `make remote-test`")


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield process
        finally:
            process.communicate()  # its input ends, and so does it
            process.wait(20)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server that speaks S3, with a bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("s3") / "log"
    with running([str(S3_PYTHON), str(HERE / "s3_server.py"), str(port)], log):
        endpoint = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
                break
            except urllib.error.URLError:
                time.sleep(0.2)
        yield endpoint


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an HDFS."""
    folder = tmp_path_factory.mktemp("hdfs")
    command = ["java", "-Xmx1g", "-cp", f"{HDFS_JARS}/*", str(HERE / "MiniHdfs.java"), str(folder / "data")]
    with running(command, folder / "log") as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("READY "), (folder / "log").read_text()
        yield f"hdfs://127.0.0.1:{int(ready.split()[1])}"


@pytest.fixture(params=["s3a", "hdfs"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a location that is not there yet, on each of the servers."""
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "here"))
    if request.param == "hdfs":
        return f"{request.getfixturevalue('hdfs')}/tests/{tmp_path.name}"
    use_s3(request.getfixturevalue("s3"), monkeypatch)
    return f"s3a://bucket/tests/{tmp_path.name}"


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)


def told(endpoint: str, what: str) -> Counter[str]:
    with urllib.request.urlopen(f"{endpoint}/-/{what}") as answer:
        return Counter(json.load(answer))


# -- the protocol ---------------------------------------------------------------------------------------------------


def opened(url: str) -> store.Elsewhere:
    return store.opened(url, options_of(lambda name: None))


def content(there: store.Elsewhere, name: str) -> bytes:
    found = BytesIO()
    there.get(name, found)
    return found.getvalue()


def test_a_store_does_what_is_asked_of_it(url: str, tmp_path: Path) -> None:
    there = opened(url)
    assert there.is_empty()
    assert there.names("") == there.names("runs") == []
    with pytest.raises(FileNotFoundError):
        content(there, "runs/a")
    big = tmp_path / "big"
    big.write_bytes(os.urandom(12 << 20))
    there.put("runs/a", b"one")
    there.put("runs/a", b"two")
    there.put("runs/big", big)
    there.put("headrace.json", b"")
    assert content(there, "runs/a") == b"two"
    assert content(there, "runs/big") == big.read_bytes()
    assert content(there, "headrace.json") == b""
    there.put_new("log/1.commit", b"first")
    with pytest.raises(FileExistsError):
        there.put_new("log/1.commit", b"second")
    assert content(there, "log/1.commit") == b"first"
    assert sorted(there.names("")) == ["headrace.json", "log/1.commit", "runs/a", "runs/big"]
    assert sorted(there.names("runs")) == ["a", "big"]
    assert there.has("runs/a")
    assert not there.has("runs/b")
    assert not there.is_empty()
    there.delete(["runs/a", "runs/b", "log/1.commit"])
    there.delete([])
    assert sorted(there.names("")) == ["headrace.json", "runs/big"]


def test_one_of_many_makes_a_file(url: str) -> None:
    there, won = opened(url), list[tuple[int, int]]()

    def write(writer: int) -> None:
        for number in range(10):
            try:
                there.put_new(f"log/{number}", f"{writer}".encode())
            except FileExistsError:
                continue
            won.append((number, writer))

    threads = [Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in won) == list(range(10))
    assert all(content(there, f"log/{number}") == f"{writer}".encode() for number, writer in won)


def test_errors_say_nothing_secret(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(room.FOLDER, str(tmp_path))
    monkeypatch.setattr(objects, "_RETRY", {"max_retries": 0})
    use_s3("http://127.0.0.1:1", monkeypatch)
    with pytest.raises(StorageError, match="could not be reached") as caught:
        problems("s3a://bucket/state")
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
    assert "\n" not in caught.value.what


# -- a location -----------------------------------------------------------------------------------------------------

VIEWS = {
    "by_shop": "SELECT shop, COUNT(*) AS n, SUM(amount) AS s, MAX(amount) AS m FROM orders GROUP BY shop",
    "by_city": "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders JOIN shops USING (shop) GROUP BY city",
    "large": "SELECT id, city, LENGTH(city) AS l FROM orders JOIN shops USING (shop) WHERE amount > 900",
}


def define(engine: hr.Engine) -> None:
    engine.table("shops", "shop BIGINT, city STRING", key="shop")
    engine.table("orders", "id BIGINT, shop BIGINT, amount BIGINT", key="id")
    for name, sql in VIEWS.items():
        engine.view(name, sql)


def rows(spark: SparkSession, first: int, last: int, diff: int = 1) -> Any:
    return spark.range(first, last).selectExpr("id", "id % 50 AS shop", "id * 7 % 1000 AS amount", f"{diff}L AS __diff")


def check(spark: SparkSession, engine: Any, first: int, last: int) -> None:
    """All answers are those of Spark over the rows that there should be."""
    rows(spark, first, last).drop("__diff").createOrReplaceTempView("orders")
    shops(spark).createOrReplaceTempView("shops")
    for name, sql in VIEWS.items():
        want = Counter(tuple(row) for row in spark.sql(sql).collect())
        found = Counter(tuple(row.values()) for row in engine.views[name].to_arrow().to_pylist())
        assert found == want, name


def shops(spark: SparkSession) -> Any:
    return spark.range(50).selectExpr("id AS shop", "CONCAT('city ', id % 9) AS city")


def test_a_life_with_jobs(url: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Engine(spark, url, buckets=4) as engine:
        define(engine)
        engine.apply({"shops": shops(spark)})
        engine.apply({"orders": rows(spark, 0, 2_000)})
        forced = hr.Engine(spark, url, executor="spark")
        assert forced.apply({"orders": rows(spark, 2_000, 150_000)}).ran == "job"
        table = rows(spark, 0, 10_000, -1).toArrow()
        assert forced.apply({"orders": table}).ran == "job"
        check(spark, forced, 10_000, 150_000)
        with pytest.raises(StorageError, match="another engine has opened it"):
            engine.apply({"orders": rows(spark, 0, 1)})
        assert forced.views["by_shop"].to_df().count() == 50
        forced.compact()
        assert forced.verify() == []
        assert not opened(url).names("batches")
        forced.close()
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "another machine"))
    assert problems(url) == []
    with Look(url) as look:
        check(spark, look, 10_000, 150_000)
    with hr.Engine(spark, url) as again:
        again.apply({"orders": rows(spark, 150_000, 150_100)})
        check(spark, again, 10_000, 150_100)
        # What a DataFrame of an earlier engine may still have needed is removed by the next.
        assert set(opened(url).names("runs")) == again._store.snapshot.files()


def test_a_stream(url: str, spark: SparkSession, tmp_path: Path) -> None:
    rows(spark, 0, 100).drop("__diff").write.parquet(str(tmp_path / "source"))
    with hr.Engine(spark, url, buckets=4) as engine:
        define(engine)
        engine.apply({"shops": shops(spark)})
        source = spark.readStream.schema("id BIGINT, shop BIGINT, amount BIGINT").parquet(str(tmp_path / "source"))
        if url.startswith("s3a"):
            engine.stream("orders", source, name="there")
            with pytest.raises(StorageError, match="hadoop-aws"):
                engine.process_available()
            engine.close()
            engine = hr.Engine(spark, url)
        engine.stream("orders", source, checkpoint=tmp_path / "offsets" if url.startswith("s3a") else None)
        engine.process_available()
        check(spark, engine, 0, 100)
        engine.close()


WRITER = """
import sys, time
import pyarrow as pa
import headrace as hr
from headrace.errors import HeadraceError
with hr.connect(sys.argv[1], cores=1, executor="inline", calibrate=False) as engine:
    print("open", flush=True)
    sys.stdin.readline()
    for i in range(int(sys.argv[2]), int(sys.argv[2]) + 40):
        try:
            engine.apply({"orders": pa.table({"id": [i], "shop": [1], "amount": [1]})})
        except HeadraceError as error:
            print("error", error.what, flush=True)
            break
        print("did", i, flush=True)
"""


def test_processes_race(url: str, spark: SparkSession) -> None:
    with hr.Engine(spark, url, buckets=4) as engine:
        define(engine)
    writers = []
    for number in range(2):
        command = [sys.executable, "-c", WRITER, url, str(1000 * number)]
        writers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert writers[-1].stdout is not None
        assert writers[-1].stdout.readline() == "open\n"
    said = [writer.communicate("go\n", timeout=120)[0].splitlines() for writer in writers]
    assert any("another engine has opened it" in line for line in said[0]), said
    done = [int(line.split()[1]) for lines in said for line in lines if line.startswith("did")]
    assert len(done) == 40
    with hr.Engine(spark, url, read_only=True) as reader:
        assert sorted(reader.tables["orders"].to_arrow().column("id").to_pylist()) == sorted(done)
        assert reader.verify() == []


def test_requests_fail(s3: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every n-th request fails, half of them after their effect, and nobody notices."""
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "here"))
    use_s3(s3, monkeypatch)
    monkeypatch.setattr(objects, "_RETRY", {"max_retries": 6, "backoff": {"init_backoff": FAST, "max_backoff": FAST}})
    chance = random.Random(drawn("failing requests", 1)[0])
    url = f"s3a://bucket/tests/{tmp_path.name}"
    with hr.Engine(spark, url, buckets=4, executor="inline") as engine:
        define(engine)
        engine.apply({"shops": shops(spark)})
        last = 0
        for _ in range(60):
            told(s3, f"fail/{chance.choice([2, 3, 5, 7])}")
            engine.apply({"orders": rows(spark, last, last + 5).toArrow()})
            last += 5
        told(s3, "fail/0")
        check(spark, engine, 0, last)
        assert engine.verify() == []
        assert set(opened(url).names("runs")) >= engine._store.snapshot.files()


def test_requests_of_a_small_step(
    s3: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "here"))
    use_s3(s3, monkeypatch)
    with hr.Engine(spark, f"s3a://bucket/tests/{tmp_path.name}", buckets=4, executor="inline") as engine:
        define(engine)
        engine.apply({"shops": shops(spark)})
        table = rows(spark, 0, 10).toArrow()
        told(s3, "asked")
        engine.apply({"orders": table})
        asked = told(s3, "asked")
    print(f"requests of a small step: {dict(asked)}")
    # Two files and the record; what is committed beside the step, such as views that come to share, is one more.
    assert 3 <= asked["PUT"] <= 4
    assert asked["GET"] == 0


def test_what_spark_was_told(s3: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that only Spark has reach the store, in the driver and in workers, and are written nowhere."""
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "here"))
    settings = {
        "endpoint": s3.removeprefix("http://"),
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "access.key": KEYS["AWS_ACCESS_KEY_ID"],
        "secret.key": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    for name, value in settings.items():
        spark.conf.set(f"spark.hadoop.fs.s3a.{name}", value)
    try:
        options = options_of(lambda name: spark.conf.get(name, None))
        url = f"s3a://bucket/tests/{tmp_path.name}"
        with hr.Engine(spark, url, buckets=4, executor="spark") as engine:
            define(engine)
            engine.apply({"shops": shops(spark)})
            engine.apply({"orders": rows(spark, 0, 500)})
            check(spark, engine, 0, 500)
        there = store.opened(url, options)
        for name in there.names(""):
            assert KEYS["AWS_SECRET_ACCESS_KEY"].encode() not in content(there, name)
        assert KEYS["AWS_SECRET_ACCESS_KEY"] not in repr(engine._store.location.remote)
    finally:
        for name in settings:
            spark.conf.unset(f"spark.hadoop.fs.s3a.{name}")
