"""The TPC-H queries of the foreign-key benchmark, with the columns that each reads.

They are TPC-H's own with validation parameters. ORDER BY and LIMIT are left out: peers that emit changes have no use
for them. Every system gets only the columns that a query reads, keys included.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """A query, and the columns that it reads per table."""

    sql: str
    columns: dict[str, tuple[str, ...]]


_LINEITEM = ("l_orderkey", "l_linenumber", "l_extendedprice", "l_discount")

QUERIES = {
    "q3": Query(
        """
        SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        """,
        {
            "customer": ("c_custkey", "c_mktsegment"),
            "orders": ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"),
            "lineitem": (*_LINEITEM, "l_shipdate"),
        },
    ),
    "q5": Query(
        """
        SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
          AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name
        """,
        {
            "region": ("r_regionkey", "r_name"),
            "nation": ("n_nationkey", "n_name", "n_regionkey"),
            "supplier": ("s_suppkey", "s_nationkey"),
            "customer": ("c_custkey", "c_nationkey"),
            "orders": ("o_orderkey", "o_custkey", "o_orderdate"),
            "lineitem": (*_LINEITEM, "l_suppkey"),
        },
    ),
    "q7": Query(
        """
        SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue
        FROM (
          SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(YEAR FROM l_shipdate) AS l_year,
                 l_extendedprice * (1 - l_discount) AS volume
          FROM supplier, lineitem, orders, customer, nation n1, nation n2
          WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
            AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
            AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        )
        GROUP BY supp_nation, cust_nation, l_year
        """,
        {
            "nation": ("n_nationkey", "n_name"),
            "supplier": ("s_suppkey", "s_nationkey"),
            "customer": ("c_custkey", "c_nationkey"),
            "orders": ("o_orderkey", "o_custkey"),
            "lineitem": (*_LINEITEM, "l_suppkey", "l_shipdate"),
        },
    ),
    "q10": Query(
        """
        SELECT c_custkey, c_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
               c_phone, c_comment
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
          AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        """,
        {
            "nation": ("n_nationkey", "n_name"),
            "customer": ("c_custkey", "c_name", "c_address", "c_nationkey", "c_phone", "c_acctbal", "c_comment"),
            "orders": ("o_orderkey", "o_custkey", "o_orderdate"),
            "lineitem": (*_LINEITEM, "l_returnflag"),
        },
    ),
}
