"""Sets of views with much in common: those of iShare's evaluation, and boards of our own.

*ten* are the queries of TPC-H that iShare calls sharing-friendly, *twenty* are these and the same with other
parameters. The pairs are an incrementable pair (A), one with a query that is not (B), and one of two queries over the
same aggregate ("Thrifty Query Processing", 4.4.2 to 4.4.6).
"""

from __future__ import annotations

from headrace.bench.share.modes import CASES as BOARDS
from headrace.datasets.tpch_queries import TPCH_22, tpch_query

_TEN = ("q4", "q5", "q7", "q8", "q9", "q15", "q17", "q18", "q20", "q21")
# Parameters as the queries have them, and others: about half of the values that are compared for equality, and ranges
# that overlap with the old ones by half at most.
_OTHERS: dict[str, dict[str, str]] = {
    "q4": {"1993-07-01": "1993-09-01"},
    "q5": {"1994-01-01": "1994-07-01"},
    "q7": {"FRANCE": "CHINA"},
    "q8": {"BRAZIL": "JAPAN", "AMERICA": "ASIA"},
    "q9": {"%green%": "%azure%"},
    "q15": {"1996-01-01": "1996-03-01"},
    "q17": {"Brand#23": "Brand#12"},
    "q18": {"> 300": "> 250"},
    "q20": {"forest%": "azure%", "1994-01-01": "1994-07-01"},
    "q21": {"SAUDI ARABIA": "EGYPT"},
}
_BY_PART = "(SELECT l_partkey, SUM(l_quantity) AS sum_quantity FROM lineitem GROUP BY l_partkey) agg_l"
_PAIR_C = {
    "qa": f"SELECT SUM(agg_l.sum_quantity) AS total_sum_quantity FROM part p, {_BY_PART} WHERE p_partkey = l_partkey",
    "qb": f"""
        SELECT ps_partkey, ps_suppkey FROM partsupp ps, (
            SELECT AVG(agg_l.sum_quantity) AS avg_quantity FROM part p, {_BY_PART}
            WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_size = 15)
        WHERE ps.ps_availqty < avg_quantity
    """,
}


def other(name: str) -> str:
    """A query with other parameters."""
    sql = tpch_query(name)
    for parameter, changed in _OTHERS[name].items():
        assert parameter in sql, f"{name} has no {parameter}"
        sql = sql.replace(parameter, changed)
    return sql


CASES: dict[str, dict[str, str]] = {
    "board": BOARDS["board"],
    "board with filters": BOARDS["board with filters"],
    "ten": {name: tpch_query(name) for name in _TEN},
    "twenty": {name: tpch_query(name) for name in _TEN} | {f"{name}_other": other(name) for name in _TEN},
    "tpch": {name: tpch_query(name) for name in TPCH_22},
    "pair a": {name: tpch_query(name) for name in ("q5", "q8")},
    "pair b": {name: tpch_query(name) for name in ("q7", "q15")},
    "pair c": _PAIR_C,
}
