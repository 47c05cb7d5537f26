"""One Spark session per worker, the seeds that a run says, and the tiers of `make check` and `make test`."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from types import ModuleType

import hypothesis
import pytest
from pyspark.sql import SparkSession
from tests.forks import Forks
from tests.seeds import SEED

from headrace.engine import upkeep
from headrace.relation import arrangement
from headrace.runtime import inline, merges, one_pass, runwriter, tasks

os.environ.setdefault("HEADRACE_CALIBRATE", "0")  # so that the same plans are chosen every time


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Starting a session takes seconds, and no test may stop it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2, 4]")  # four attempts a task, so that tests may kill workers
        .appName("headrace-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def forks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Programs in processes of their own, all on the JVM of the session."""
    server = Forks(spark, tmp_path_factory.mktemp("forks"))
    yield server
    server.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("check", "all", "cluster"),
        default="all",
        help="check: what needs no Spark, and of the rest what is marked `check`; cluster: what is marked `cluster`; "
        "all: everything else",
    )


def pytest_report_header() -> str:
    return f"random tests: HEADRACE_SEED={SEED}"


Limits = dict[tuple[ModuleType, str], int]
PASSES: list[Limits] = [
    {},  # small steps in one pass
    {  # from bucket to bucket, by threads that take a few rows each
        (one_pass, "MOST_ROWS"): 0,
        (one_pass, "MOST_ROWS_PER_BUCKET"): 0,
        (inline, "WORTH_THREADS"): 2,
        (inline, "_PART_ROWS"): 1,
    },
    {  # in turns
        (one_pass, "MOST_ROWS"): 8,  # shared by two cores
        (one_pass, "MOST_ROWS_PER_BUCKET"): 0,
        (merges, "RECENT_ENTRIES"): 12,
        (merges, "RECENT_ENTRIES_PER_BUCKET"): 0,
        (merges, "RECENT_SHARE"): 1 << 30,
    },
]
MERGES: list[Limits] = [
    {},  # by steps, because all runs are small
    {  # beside steps, in small pieces, and often behind
        (tasks, "_SMALL"): 0,
        (arrangement, "_LARGE_FAN_IN"): 2,
        (runwriter, "_PIECE_BYTES"): 1,
        (runwriter, "_LEAST_ROWS"): 3,
        (upkeep, "MOST_RUNS"): 4,
    },
]
USUAL = {(module, name): getattr(module, name) for limits in (*PASSES, *MERGES) for module, name in limits}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say how the driver does the steps of a random test: they are small, so all would be done in one way."""
    callspec = getattr(item, "callspec", None)
    limits: Limits = {}
    if callspec is not None and "seed" in callspec.params:
        which = zlib.crc32(f"{SEED} {item.nodeid.partition('@')[0]}".encode())
        limits = PASSES[which % len(PASSES)] | MERGES[which // len(PASSES) % len(MERGES)]
    for (module, name), limit in {**USUAL, **limits}.items():
        setattr(module, name, limit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        report.sections.append(("to try the same seeds again", f"HEADRACE_SEED={SEED}"))
    return report


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        function = getattr(item, "obj", None)
        if hypothesis.is_hypothesis_test(function):
            hypothesis.seed(SEED)(function)
        if item.get_closest_marker("xdist_group") is None:  # tests of a file share what is made once per file
            item.add_marker(pytest.mark.xdist_group(item.path.name if _is_light(item) else _group(item)))
    tier = config.getoption("--tier")
    left = [item for item in items if not _is_in(tier, item)]
    items[:] = [item for item in items if _is_in(tier, item)]
    config.hook.pytest_deselected(items=left)


def _is_light(item: pytest.Item) -> bool:
    return "spark" not in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str:
    """Where a worker is to run a test: with those of its file, but each seed may go anywhere."""
    callspec = getattr(item, "callspec", None)
    return item.nodeid if callspec is not None and "seed" in callspec.params else str(item.path)


def _is_in(tier: str, item: pytest.Item) -> bool:
    on_cluster = item.get_closest_marker("cluster") is not None
    return on_cluster if tier == "cluster" else not on_cluster and (tier == "all" or _in_check(item))


def _in_check(item: pytest.Item) -> bool:
    if item.get_closest_marker("whole") is not None:
        return False
    if item.get_closest_marker("check") is not None:
        return True
    # Benchmarks check themselves, and data sets are as they were unless their own files change.
    return _is_light(item) and not {"bench", "datasets"} & set(item.path.parts)
