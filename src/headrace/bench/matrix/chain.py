"""The product of three square matrices under changes of the second one: rows, and changes of rank r (Section 9.7).

Headrace is measured from the call to the commit of the step, which is durable; and again with reading the whole product
after the step, as an array. Changes are kept as factors, which are multiplied out when there are many, so a case has as
many changes as that takes, and its time is the mean of all. A row is changed twice: as an outer product, and as
ordinary rows of the table, which Headrace factorizes. NumPy recomputes both products, or, as a first-order delta,
multiplies the changed rows as a full matrix (A1 dA2) A3, and adds the result to the product; it keeps nothing on disk.
All products are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.engine.engine import Engine
from headrace.engine.matrix_chains import MatrixChain
from headrace.relation.outer import Outer, entries, outer
from headrace.runtime.session import local_session

Tell = Callable[[str], None]
Numbers = NDArray[np.float64]
_WARM, _READ = 2, 10  # changes that are not timed, and those after which the whole product is read
_ROW, _AS_ROWS = "one row", "one row, as rows"
_TARGET = ("4096, one row: recompute / step", 50.0)
_TOLERANCE = 1e-9  # of the largest entry of the product


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench matrix-chain", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096], help="sides (default 1024 4096)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 32], help="ranks (default 1 8 32)")
    parser.add_argument("--repeat", type=int, default=150, help="sum of the ranks of timed changes (default 150)")
    parser.add_argument("--recompute", type=int, default=3, help="recomputations that are timed (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the matrices")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for size in options.sizes:
        with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
            found = _Bench(size, options, tell).run(Path(folder))
        results += found
        ratios |= _ratios(size, found)
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config["cores"] = local_session().sparkContext.defaultParallelism
    found = judged([_target(config, ratios)], results)
    return {"bench": "matrix-chain", "config": config, "results": results, "ratios": ratios, "targets": found}


def _target(config: dict[str, Any], ratios: dict[str, float]) -> Verdict:
    name, bound = _TARGET
    return verdict(name, ">=", bound, ratios.get(name), why_not=other_options(config, {"cores": 2}))


class _Bench:
    """One size."""

    def __init__(self, size: int, options: argparse.Namespace, tell: Tell) -> None:
        self.size = size
        self.options = options
        self.tell = tell
        self.rng = np.random.default_rng(options.seed)
        self.arrays = {name: self.rng.normal(size=(size, size)) for name in ("a1", "a2", "a3")}

    def run(self, folder: Path) -> list[dict[str, Any]]:
        n, repeat = self.size, self.options.repeat
        cases: dict[str, tuple[Callable[[], Outer], int]] = dict.fromkeys((_ROW, _AS_ROWS), (self._row_change, 1))
        for rank in self.options.ranks:
            cases[f"rank {rank}"] = (partial(self._of_rank, rank), rank)
        results = []
        with Engine(local_session(), folder / "state") as engine:
            chain = engine.matrix_chain("product", dict.fromkeys(self.arrays, (n, n)))
            assert isinstance(chain, MatrixChain)
            start = time.perf_counter()
            for name, array in self.arrays.items():
                self.tell(f"{n} x {n}: loading {name}")
                chain.load(name, array)
            loading = time.perf_counter() - start
            for case, (draw, rank) in cases.items():
                self.tell(f"{n} x {n}: {case}")
                count = max(min(_READ, repeat), -(-repeat // rank))
                changes = [draw() for _ in range(_WARM + count)]
                as_rows = case == _AS_ROWS
                taken = [self._apply(engine, chain, c, as_rows, k < _WARM + _READ) for k, c in enumerate(changes)]
                steps, reads = zip(*taken[_WARM:], strict=True)
                results.append(self._row("headrace", case, "step", steps))
                read = [seconds for seconds in reads if seconds]
                results.append(self._row("headrace", case, "step and reading all", read))
                results[-2] |= {"load_seconds": loading, "state_mb": chain.explain().state_bytes / 1e6}
                product, row = self._recomputed(case)
                results.append(row)
                results.append(self._first_order(case, changes[-1]))
                worst = float(np.abs(chain.to_numpy() - product).max() / np.abs(product).max())
                results[-4]["difference"] = worst
                if not worst <= _TOLERANCE:
                    results[-4]["wrong"] = f"an entry differs by {worst:.1e} of the largest"
        return results

    def _row_change(self) -> Outer:
        return outer(np.eye(1, self.size, int(self.rng.integers(self.size)))[0], self.rng.normal(size=self.size))

    def _of_rank(self, rank: int) -> Outer:
        change = outer(self.rng.normal(size=self.size), self.rng.normal(size=self.size))
        for _ in range(rank - 1):
            change = change + outer(self.rng.normal(size=self.size), self.rng.normal(size=self.size))
        return change

    def _apply(
        self, engine: Engine, chain: MatrixChain, change: Outer, as_rows: bool, reads: bool
    ) -> tuple[float, float]:
        """Apply a change; return the seconds of the step, and with reading the product, or 0 if it is not read."""
        left, right = (np.stack([term[side] for term in change.terms]) for side in (0, 1))
        given: Outer | pa.Table = change
        if as_rows:
            (at,) = np.flatnonzero(left[0])
            given = entries(right[:1], int(at))
        start = time.perf_counter()
        engine.apply({"a2": given})
        applied = time.perf_counter()
        if reads:
            chain.to_numpy()
        read = time.perf_counter()
        self.arrays["a2"] += left.T @ right
        return applied - start, read - start if reads else 0.0

    def _recomputed(self, case: str) -> tuple[Numbers, dict[str, Any]]:
        seconds = []
        a1, a2, a3 = self.arrays.values()
        for _ in range(self.options.recompute):
            start = time.perf_counter()
            product = (a1 @ a2) @ a3
            seconds.append(time.perf_counter() - start)
        return product, self._row("numpy", case, "recompute", seconds)

    def _first_order(self, case: str, change: Outer) -> dict[str, Any]:
        a1, _, a3 = self.arrays.values()
        product = np.zeros((self.size, self.size))
        added = change.to_numpy()
        start = time.perf_counter()
        product += (a1 @ added) @ a3
        return self._row("numpy", case, "first-order", [time.perf_counter() - start])

    def _row(self, system: str, case: str, what: str, seconds: Sequence[float]) -> dict[str, Any]:
        mean = statistics.mean(seconds)
        return {
            "system": system,
            "case": f"{self.size}, {case}: {what}",
            "rows": self.size,
            "changes": len(seconds),
            "seconds": mean,
            "median_seconds": statistics.median(seconds),
            "max_seconds": max(seconds),
            "rows_per_s": self.size / mean,
        }


def _ratios(size: int, results: list[dict[str, Any]]) -> dict[str, float]:
    seconds = {row["case"]: row["seconds"] for row in results}
    ratios = {}
    for case in seconds:
        change, what = case.split(": ")
        if what in ("recompute", "first-order"):
            ratios[f"{change}: {what} / step"] = seconds[case] / seconds[f"{change}: step"]
        if what == "recompute":
            name = f"{change}: {what} / step and reading all"
            ratios[name] = seconds[case] / seconds[f"{change}: step and reading all"]
    return ratios


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    shown = Table(title="a product of three square matrices, changes of the second", box=SIMPLE_HEAD)
    for name in ("case", ">ms, mean", ">median", ">slowest", ">changes", "note"):
        shown.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    for row in result["results"]:
        note = row.get("wrong", f"differs by {row['difference']:.0e}" if "difference" in row else "")
        times = (f"{1000 * row[key]:,.1f}" for key in ("seconds", "median_seconds", "max_seconds"))
        shown.add_row(row["case"], *times, str(row["changes"]), note)
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))
