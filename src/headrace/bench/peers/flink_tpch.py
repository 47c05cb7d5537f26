"""Queries of TPC-H on Flink SQL, over a stream of insertions and deletions. Runs in the environment of Flink.

    python flink_tpch.py QUERY FOLDER RESULT

All tables come in one stream of lines, which Flink's own FROM_CHANGELOG turns into changes; the answer goes as a
changelog into files, which are folded after the clock has stopped. Mini-batches are off: measured, they took more time
than they saved, and they delay the inputs of a join so differently that a window slides past most of its work.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

QUERIES = {
    "q3": """
        SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING'
            AND c_custkey = o_custkey
            AND l_orderkey = o_orderkey
            AND o_orderdate < DATE '1995-03-15'
            AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q5": """
        SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey
            AND l_orderkey = o_orderkey
            AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey
            AND s_nationkey = n_nationkey
            AND n_regionkey = r_regionkey
            AND r_name = 'ASIA'
            AND o_orderdate >= DATE '1994-01-01'
            AND o_orderdate < DATE '1994-01-01' + INTERVAL '1' YEAR
        GROUP BY n_name""",
    "q7": """
        SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue
        FROM (
            SELECT
                n1.n_name AS supp_nation,
                n2.n_name AS cust_nation,
                EXTRACT(YEAR FROM l_shipdate) AS l_year,
                l_extendedprice * (1 - l_discount) AS volume
            FROM supplier, lineitem, orders, customer, nation n1, nation n2
            WHERE s_suppkey = l_suppkey
                AND o_orderkey = l_orderkey
                AND c_custkey = o_custkey
                AND s_nationkey = n1.n_nationkey
                AND c_nationkey = n2.n_nationkey
                AND (
                    (n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY')
                    OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')
                )
                AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        ) AS shipping
        GROUP BY supp_nation, cust_nation, l_year""",
    "q10": """
        SELECT
            c_custkey, c_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
            c_phone, c_comment
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey
            AND l_orderkey = o_orderkey
            AND o_orderdate >= DATE '1993-10-01'
            AND o_orderdate < DATE '1993-10-01' + INTERVAL '3' MONTH
            AND l_returnflag = 'R'
            AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment""",
}

ANSWERS = {
    "q3": "l_orderkey BIGINT, revenue DOUBLE, o_orderdate DATE, o_shippriority INT",
    "q5": "n_name STRING, revenue DOUBLE",
    "q7": "supp_nation STRING, cust_nation STRING, l_year BIGINT, revenue DOUBLE",
    "q10": (
        "c_custkey BIGINT, c_name STRING, revenue DOUBLE, c_acctbal DOUBLE, n_name STRING, c_address STRING, "
        "c_phone STRING, c_comment STRING"
    ),
}

SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
}


def sql_type(column: str) -> str:
    """Return the type of a column of TPC-H: its name tells."""
    if column.endswith("key"):
        return "BIGINT"
    if column.endswith("date"):
        return "DATE"
    if column.endswith("priority"):
        return "INT"
    return "DOUBLE" if column in ("l_extendedprice", "l_discount", "c_acctbal") else "STRING"


def folded(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows that are left of a changelog in Debezium's JSON, in order.

    Every change of a group takes back exactly the row that it replaces, so counting suffices, in any order.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        change = json.loads(line)
        for side, sign in (("before", -1), ("after", 1)):
            if change[side] is not None:
                counts[json.dumps(change[side])] += sign
    rows = [json.loads(row) for row, count in counts.items() for _ in range(count)]
    if any(count < 0 for count in counts.values()):
        raise RuntimeError("Flink took back rows that it had never sent")
    return sorted(rows, key=lambda row: [value for name, value in row.items() if name != "revenue"])


def main(query: str, folder: Path) -> dict[str, Any]:
    """Run a query over the start of the stream, so that Java has compiled what it runs, and then over all of it."""
    run(query, folder, "warm.csv")
    seconds, answer = run(query, folder, "changes.csv")
    return {"seconds": seconds, "answer": answer}


def run(query: str, folder: Path, source: str) -> tuple[float, list[dict[str, Any]]]:
    """Run a query over the lines of a file; return the seconds that it took, and the answer."""
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        flink.get_config().set(name, value)
    tables = json.loads((folder / "stream.json").read_text())["tables"]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as output:
        for statement in declarations(tables, folder / source, Path(output), ANSWERS[query]):
            flink.execute_sql(statement)
        start = time.perf_counter()
        flink.execute_sql(f"INSERT INTO answer {QUERIES[query]}").wait()
        seconds = time.perf_counter() - start
        return seconds, folded(line for path in Path(output).iterdir() for line in path.read_text().splitlines())


def declarations(tables: dict[str, list[str]], source: Path, output: Path, answer: str) -> Iterator[str]:
    """Yield the statements that declare the tables of the stream, and the answer."""
    columns = ", ".join(f"{column} {sql_type(column)}" for names in tables.values() for column in names)
    files = f"'connector' = 'filesystem', 'path' = '{quoted(source)}', 'format' = 'csv', 'csv.null-literal' = ''"
    yield f"CREATE TABLE `lines` (`__table` INT, `__diff` STRING, {columns}) WITH ({files})"
    yield """
        CREATE VIEW changes AS SELECT * FROM FROM_CHANGELOG(
            input => TABLE `lines`,
            op => DESCRIPTOR(`__diff`),
            op_mapping => MAP['1', 'INSERT', '-1', 'DELETE']
        )"""
    for number, (name, names) in enumerate(tables.items()):
        yield f"CREATE VIEW {name} AS SELECT {', '.join(names)} FROM changes WHERE `__table` = {number}"
    files = f"'connector' = 'filesystem', 'path' = '{quoted(output)}', 'format' = 'debezium-json'"
    yield f"CREATE TABLE answer ({answer}) WITH ({files})"


def quoted(path: Path) -> str:
    """Return a path as it stands between quotes in SQL."""
    return str(path).replace("'", "''")


def reason(error: Exception) -> str:
    """Return why Flink failed: of a chain of Java exceptions the first cause, of others the message."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return f"{type(error).__name__}: {error}"
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())


if __name__ == "__main__":
    try:
        result = main(sys.argv[1], Path(sys.argv[2]))
    except Exception as error:  # whatever it is, the benchmark shall be able to print it
        result = {"failed": reason(error)}
    Path(sys.argv[3]).write_text(json.dumps(result))
