"""A driver that replays a file of updates and is going to be killed; it uses the JVM of the test that started it."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS
from headrace.sources import UpdateFile

VIEWS = {
    "flags": "SELECT l_returnflag, COUNT(*) AS n, SUM(l_quantity) AS quantity FROM lineitem GROUP BY l_returnflag",
    "days": "SELECT o_orderdate, COUNT(*) AS n, SUM(l_extendedprice) AS price "
    "FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY o_orderdate",
}


def open_engine(spark, location: Path) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=2, executor="inline")
    for name, spec in TPCH_SCHEMAS.items():
        engine.table(name, spec.schema, key=spec.key, references=dict(spec.references), expected_rows=1_000)
    for name, sql in VIEWS.items():
        engine.view(name, sql)
    return engine


def main() -> None:
    location, port, secret, file, batch = sys.argv[1:]
    spec = spec_from_file_location("crash_child", Path(__file__).parent.parent / "engine" / "crash_child.py")
    assert spec is not None
    assert spec.loader is not None
    crash_child = module_from_spec(spec)
    spec.loader.exec_module(crash_child)
    engine = open_engine(crash_child.attach(int(port), secret), Path(location))
    for step in UpdateFile(file, batch=int(batch)).replay(engine, name="updates"):
        print(step.number, flush=True)


if __name__ == "__main__":
    main()
