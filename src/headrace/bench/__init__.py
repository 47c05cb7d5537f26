"""The benchmarks, part of the package so that `headrace bench` runs them after a plain install.

There is one folder per subject; its docstring says what it measures. A benchmark is a module of such a folder with
`run(argv, tell) -> dict`, which runs Headrace and its peers in one invocation, and `table(result)`, which returns what
Rich prints for people. `headrace bench` finds it by its name in `BENCHMARKS`. Several names may share a module: their
`arguments` tell it which of them is meant. A row of the results that has the key `wrong` reports a wrong answer, and
makes the command fail once everything is printed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """An entry of the registry of benchmarks.

    Attributes
    ----------
    module : its module, relative to `headrace.bench`.
    about : what it measures, for the list that `headrace bench` prints.
    arguments : what its `run` gets before the arguments of the user.
    """

    module: str
    about: str
    arguments: tuple[str, ...] = ()


def _covariance(name: str, about: str) -> Benchmark:
    return Benchmark("covariance.strategies", f"covariance over a join, factorized and otherwise: {about}", (name,))


BENCHMARKS = {
    "start": Benchmark("start.first_view", "from the start of a process to the first view, beside a bare SparkSession"),
    "step": Benchmark("step.one_table", "one-table views: step cost against recomputation"),
    "top": Benchmark("step.top", "ORDER BY with LIMIT: steps in which top rows leave, by the size of the table"),
    "windows": Benchmark("step.windows", "window functions: latest and best rows of each key, running and moving sums"),
    "upserts": Benchmark("step.upserts", "rows replaced by their keys in a large table, beside Spark and DuckDB"),
    "stream": Benchmark("stream.micro_batches", "micro-batches and DataFrames, beside what Spark takes for them"),
    "housing": _covariance("housing", "a star of 6 tables, 26 features"),
    "retailer": _covariance("retailer", "a snowflake of 5 tables, 39 features"),
    "favorita": _covariance("favorita", "6 tables on date, store and item, 15 features"),
    "ssb": _covariance("ssb", "SSB with duplicated dimensions, 33 features"),
    "tpch-covariance": _covariance("tpch-covariance", "TPC-H with duplicated dimensions, 31 features"),
    "mixed": Benchmark("mixed.strategies", "covariance with categorical features, against recomputation"),
    "chow-liu": Benchmark(
        "covariance.chow_liu", "mutual information and a Chow-Liu tree after every batch, beside the counts alone"
    ),
    "inventory-growth": Benchmark("step.growth", "the same small batch into a small and a large table"),
    "tpch": Benchmark("tpch.views", "the queries of TPC-H as views: filling and steps, against Spark"),
    "one-sum": Benchmark("sums.one_sum", "one sum over a join, beside computing it anew after every batch"),
    "factorized": Benchmark("results.factorized_join", "rows of the Housing join: factorized, listed and recomputed"),
    "enumeration": Benchmark("results.enumeration", "rows of q-hierarchical joins, listed after every so many batches"),
    "foreign-key": Benchmark("foreign.sliding_window", "TPC-H queries under a sliding window, with peers"),
    "disorder": Benchmark("disorder.early_answers", "window joins over late streams: early answers, estimated and not"),
    "window-stream": Benchmark(
        "disorder.stream", "a window join through Structured Streaming, beside Spark's own join"
    ),
    "pace": Benchmark("pace.final_work", "views with goals of final work: paces, final work and additional work"),
    "share": Benchmark("share.modes", "views that share subplans, beside views that share nothing"),
    "share-goals": Benchmark("share.goals", "views with goals: shared or not, with one pace or with many"),
    "keep": Benchmark("keep.waiting", "views under a memory budget, beside recomputing and keeping everything"),
    "triangle": Benchmark("graph.triangle", "triangles of a skewed graph, by each strategy and by Spark"),
    "triangle-covariance": Benchmark("graph.triangle_covariance", "a covariance over triangles, by each strategy"),
    "paths": Benchmark("graph.paths", "k-paths, joins of up to 20 copies of one edge table: rounds in the same time"),
    "matrix-chain": Benchmark("matrix.chain", "a product of three matrices under changes of low rank, beside NumPy"),
    "scaling": Benchmark("covariance.scaling", "one core and two, measured; 64 on paper"),
    "soak": Benchmark("soak.endless", "an hour of changes to tables that do not grow: what else must not"),
    "paper": Benchmark("paper.figures", "the figures of Section 9 of the F-IVM paper: ours beside the paper's"),
}
