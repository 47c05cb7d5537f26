"""SQL logic tests: every statement of every case file, kept up to date through the steps of its file."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.logic.case_file import FOLDER, parse, read, rewritten
from tests.logic.runner import run
from tests.seeds import SEED, share

CASES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.test"))}
PACED = share("paced", sorted(CASES), 6)  # with goals, and paths that are flushed between triggers
# Also by Spark tasks, with a restart before the last step. One file once found another plan than its own after that.
ON_SPARK = sorted({*share("by Spark tasks", sorted(CASES), 5), "subqueries_distinct"})
CHECKED = share("make check", sorted(CASES), 5)

Outcomes = Callable[[str, str], dict[str, str]]


def statements(files: Iterable[str], executor: str, check: Collection[str] = ()) -> Any:
    """A test for each statement of some files; a file stays on one worker, because it is run once."""
    params = [
        pytest.param(
            file,
            statement,
            marks=[
                pytest.mark.xdist_group(f"logic {executor} {file}"),
                *([pytest.mark.check] if file in check else []),
            ],
        )
        for file in files
        for statement in CASES[file].statements
    ]
    return pytest.mark.parametrize(("file", "statement"), params)


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What went wrong in a case file, by statement: each file is run once, when its first statement is tested."""
    done: dict[tuple[str, str], dict[str, str]] = {}

    def of(file: str, executor: str) -> dict[str, str]:
        if (file, executor) not in done:
            location = tmp_path_factory.mktemp(file)
            paced = random.Random(f"{SEED} {file}") if executor == "paced" else None
            how = {"executor": executor if paced is None else "inline", "restart": executor != "inline"}
            done[file, executor] = run(spark, CASES[file], location, paced=paced, **how)
        return done[file, executor]

    return of


@pytest.mark.timeout(900)
@statements(CASES, "inline", CHECKED)
def test_inline(outcomes: Outcomes, file: str, statement: str) -> None:
    if wrong := outcomes(file, "inline").get(statement):
        pytest.fail(wrong, pytrace=False)


@pytest.mark.timeout(900)
@statements(ON_SPARK, "spark")
def test_on_spark(outcomes: Outcomes, file: str, statement: str) -> None:
    if wrong := outcomes(file, "spark").get(statement):
        pytest.fail(wrong, pytrace=False)


@pytest.mark.timeout(900)
@statements(PACED, "paced")
def test_paced(outcomes: Outcomes, file: str, statement: str) -> None:
    if wrong := outcomes(file, "paced").get(statement):
        pytest.fail(wrong, pytrace=False)


def test_files_are_as_expect_would_write_them() -> None:
    for path in sorted(FOLDER.glob("*.test")):
        text = path.read_text()
        case = parse(path.stem, text)
        assert rewritten(text, {query.name: query for query in case.queries}) == text, path.name
        for step in range(len(case.steps) + 1):
            case.rows(step)  # fails if a step deletes what is not there
