"""Computes the answers that case files expect, with plain Spark SQL, and writes them into the files.

    python -m tests.logic.expect [--check] [NAME or FILE ...]

No part of Headrace's engine takes part: rows go into Spark as temporary views, and Spark's answers come back. With
`--check` nothing is written, and files whose answers are not Spark's are named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.logic.case_file import FOLDER, CaseFile, Columns, Query, read, rewritten
from tests.logic.values import Row

from headrace.testing.oracle import Oracle, arrow_type, sql_name


def expected(oracle: Oracle, case: CaseFile) -> dict[str, Query]:
    """The queries of a case file with Spark's answers after the load and after every step."""
    answers: dict[str, list[tuple[Row, ...]]] = {query.name: [] for query in case.queries}
    columns: dict[str, Columns] = {}
    for step in range(len(case.steps) + 1):
        oracle.set_rows(case.rows(step))
        for query, answer in _answers(oracle, case, step):
            kinds = tuple(arrow_type(sql_name(field.type)) for field in answer.schema)
            columns[query.name] = Columns(tuple(answer.column_names), kinds)
            answers[query.name].append(tuple(zip(*(column.to_pylist() for column in answer.columns), strict=True)))
    return {
        query.name: replace(query, columns=columns[query.name], answers=tuple(answers[query.name]))
        for query in case.queries
    }


def _answers(oracle: Oracle, case: CaseFile, step: int) -> Iterator[tuple[Query, pa.Table]]:
    """The answers to all queries: of those without an order several in one job, which takes Spark half the time."""
    unordered = [query for query in case.queries if not query.ordered]
    batches = [unordered[i : i + 8] for i in range(0, len(unordered), 8)]
    batches += [[query] for query in case.queries if query.ordered]
    for batch in batches:
        try:
            answers = oracle.answers([query.sql for query in batch])
        except Exception as error:
            if len(batch) > 1:
                batches += [[query] for query in batch]  # to tell which of them it is
                continue
            raise ValueError(f"{case.name}.test, query {batch[0].name}, step {step}: {error}") from error
        yield from zip(batch, answers, strict=True)


def main(arguments: list[str]) -> int:
    """Bring the named case files up to date, or all of them."""
    check = "--check" in arguments
    names = [argument for argument in arguments if argument != "--check"]
    paths = [FOLDER / f"{Path(name).stem}.test" for name in names] or sorted(FOLDER.glob("*.test"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.sql.adaptive.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    failed = False
    for path in paths:
        text = path.read_text()
        try:
            new = rewritten(text, expected(Oracle(spark), read(path)))
        except ValueError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        if new != text and not check:
            path.write_text(new)
        failed |= new != text and check
        print(f"{path.name}: {'as it was' if new == text else 'differs' if check else 'written'}", flush=True)
    spark.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
