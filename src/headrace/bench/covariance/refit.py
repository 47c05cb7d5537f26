"""What it costs to refit a regression after every batch, beside the batch itself.

A descent from the last parameters has little left to do after a small change. Its iterations are reported beside those
of a descent from scratch, and its time beside that of the closed form.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any

from headrace.engine.models import Covariance
from headrace.errors import NotEnoughDataError
from headrace.learn.regression import LinearRegression


class Refits:
    """Times the fits after each batch of one run."""

    def __init__(self, label: str) -> None:
        self._warm = LinearRegression(label, solver="gradient")
        self._closed = LinearRegression(label)
        self._batches: list[float] = []
        self._seconds: dict[str, list[float]] = {"gradient": [], "cholesky": []}
        self._iterations: list[tuple[int, int]] = []  # from the last parameters, and from scratch

    def after(self, handle: Covariance, batch_seconds: float) -> None:
        """Refit to the moments of the last step; the time to read them counts."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the data sets have features that depend on one another
            try:
                start = time.perf_counter()
                moments = handle.moments()
                read = time.perf_counter()
                self._warm.fit(moments)
                descended = time.perf_counter()
                self._closed.fit(moments)
                solved = time.perf_counter()
                scratch = self._warm.clone().fit(moments)
            except NotEnoughDataError:  # nothing joins yet
                return
        self._batches.append(batch_seconds)
        self._seconds["gradient"].append(descended - start)
        self._seconds["cholesky"].append(read - start + solved - descended)
        self._iterations.append((self._warm.iterations_, scratch.iterations_))

    def results(self) -> list[dict[str, Any]]:
        """Return one row per solver."""
        if not self._batches:
            return []
        # The first fit has nothing to go on from.
        after_first = slice(1, None) if len(self._batches) > 1 else slice(None)
        iterations = self._iterations[after_first]
        rows = []
        for solver, every in self._seconds.items():
            seconds, batches = every[after_first], self._batches[after_first]
            row = {
                "system": "headrace",
                "case": f"refit, {solver}",
                "batches": len(seconds),
                "seconds": statistics.median(seconds),
                "max_seconds": max(seconds),
                "share_of_batch": sum(seconds) / sum(batches),
            }
            if solver == "gradient":
                row["iterations"] = statistics.median(warm for warm, _ in iterations)
                row["iterations_from_scratch"] = statistics.median(scratch for _, scratch in iterations)
            rows.append(row)
        return rows
