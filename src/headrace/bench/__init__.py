"""The benchmarks, part of the package so that `headrace bench` runs them after a plain install.

A benchmark is a module here with `run(argv, tell) -> dict`, which runs Headrace and its peers in one invocation, and
`table(result)`, which gives Rich the result to print for people. Its name must stand in `BENCHMARKS` to be found;
several names may share a module, which is then told by its first argument which of them is meant. A row of the results
that has `wrong` has an answer that is not right, and makes the command fail once all is printed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is, what it is for, and what goes before the arguments that a user gives."""

    module: str
    about: str
    arguments: tuple[str, ...] = ()


def _covariance(name: str, about: str) -> Benchmark:
    return Benchmark("covariance", f"covariance over a join, factorized and otherwise: {about}", (name,))


BENCHMARKS = {
    "step": Benchmark("step", "one-table views: step cost against recomputation"),
    "housing": _covariance("housing", "a star of 6 tables, 26 features"),
    "retailer": _covariance("retailer", "a snowflake of 5 tables, 39 features"),
    "favorita": _covariance("favorita", "6 tables on date, store and item, 15 features"),
    "ssb": _covariance("ssb", "SSB with duplicated dimensions, 33 features"),
    "tpch-covariance": _covariance("tpch-covariance", "TPC-H with duplicated dimensions, 31 features"),
    "inventory-growth": Benchmark("growth", "the same small batch into a small and a large table"),
    "tpch": Benchmark("tpch", "the queries of TPC-H as views: filling and steps, against Spark"),
    "foreign-key": Benchmark("foreign", "TPC-H queries under a sliding window, with peers"),
    "disorder": Benchmark("disorder", "window joins over late streams: early answers, estimated and not"),
    "window-stream": Benchmark("window_stream", "a window join through Structured Streaming, beside Spark's own join"),
    "scaling": Benchmark("scaling", "one core and two, measured; 64 on paper"),
}
