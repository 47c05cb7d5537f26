"""The queries of TPC-H as texts: its own 22 with validation parameters, and the four that CrocodileDB adds.

Benchmarks and tests share one file per query. The files stand with the tests; a built package has a copy beside this
module, which `setup.py` puts there, so that an installed Headrace needs no checkout.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import HeadraceError, SchemaError

TPCH_22 = tuple(f"q{number}" for number in range(1, 23))
TPCH_QUERIES = (*TPCH_22, "q_aggjoin", "q_outer", "q_a", "q_b")
"""The names of all queries, those of TPC-H first."""

_HERE = Path(__file__).resolve()
_FOLDERS = (_HERE.parent / "tpch_sql", _HERE.parents[3] / "tests" / "fixtures" / "tpch")


def tpch_query(name: str) -> str:
    """Return the text of a query, over the tables of `TPCH_SCHEMAS`.

    >>> print(tpch_query("q6").splitlines()[0])
    SELECT sum(l_extendedprice * l_discount) AS revenue
    """
    if name not in TPCH_QUERIES:
        raise SchemaError(f"TPC-H has no query {name!r}", way_out=f"use one of {', '.join(TPCH_QUERIES)}")
    for folder in _FOLDERS:
        path = folder / f"{name}.sql"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise HeadraceError(
        f"The text of {name} is in none of {', '.join(map(str, _FOLDERS))}.",
        way_out="Install Headrace again, from a checkout that has its tests or from a wheel.",
    )
