"""What it costs to refit a regression after every batch, beside the batch itself (F-IVM, Figure 22).

A descent from the last parameters has little left to do after a small change. Its iterations and its time are reported
beside those of a descent from scratch, and beside the time of the closed form.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.bench.measuring.progress import progress
from headrace.engine.models import Covariance
from headrace.errors import NotEnoughDataError
from headrace.learn.regression import LinearRegression

WARM, SCRATCH, CLOSED = "gradient", "gradient from scratch", "cholesky"


@dataclass(frozen=True)
class _Fits:
    """What was fitted after one batch; nothing while nothing joins."""

    batch: float  # seconds
    seconds: dict[str, float]  # by solver, with reading the moments
    iterations: dict[str, int]


class Refits:
    """Times the fits after each batch of one run."""

    def __init__(self, label: str) -> None:
        self._warm = LinearRegression(label, solver="gradient")
        self._closed = LinearRegression(label)
        self._fits: list[_Fits] = []
        self.spent = 0.0  # seconds, in all fits

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
                end = time.perf_counter()
            except NotEnoughDataError:  # nothing joins yet
                self._fits.append(_Fits(batch_seconds, {}, {}))
                return
        reading = read - start
        seconds = {
            WARM: reading + descended - read,
            SCRATCH: reading + end - solved,
            CLOSED: reading + solved - descended,
        }
        self._fits.append(_Fits(batch_seconds, seconds, {WARM: self._warm.iterations_, SCRATCH: scratch.iterations_}))
        self.spent += end - start

    def results(self, rows: Sequence[int], total: int, parts: int) -> list[dict[str, Any]]:
        """Return one row per solver.

        Parameters
        ----------
        rows : of each batch.
        total : rows of the whole stream.
        parts : parts of the stream to report throughput and iterations of; 0 for none.
        """
        fitted = [fits for fits in self._fits if fits.seconds]
        if not fitted:
            return []
        # The first fit has nothing to go on from.
        after_first = fitted[1:] or fitted
        made = []
        for solver in (WARM, SCRATCH, CLOSED):
            seconds = [fits.seconds[solver] for fits in after_first]
            together = [fits.batch + fits.seconds.get(solver, 0.0) for fits in self._fits]
            done = rows[: len(together)]
            row: dict[str, Any] = {
                "system": "headrace",
                "case": f"refit, {solver}",
                "batches": len(seconds),
                "seconds": statistics.median(seconds),
                "max_seconds": max(seconds),
                "last_seconds": seconds[-1],
                "share_of_batch": sum(seconds) / sum(fits.batch for fits in after_first),
                "rows_per_s_with_batches": sum(done) / sum(together),
            }
            if solver == WARM:
                row["iterations"] = statistics.median(fits.iterations[WARM] for fits in after_first)
                row["iterations_from_scratch"] = statistics.median(fits.iterations[SCRATCH] for fits in after_first)
            if solver in (WARM, SCRATCH):
                row["total_iterations"] = sum(fits.iterations[solver] for fits in fitted)
            if parts:
                row["progress"] = progress(done, together, total, parts)
                row["iterations_by_share"] = self._iterations(solver, done, total, parts)
            made.append(row)
        return made

    def _iterations(self, solver: str, rows: Sequence[int], total: int, parts: int) -> list[dict[str, float]]:
        """Cumulative iterations at the ends of the parts of the stream."""
        ends = [point["share"] for point in progress(rows, [fits.batch for fits in self._fits], total, parts)]
        found: list[dict[str, float]] = []
        spent = seen = 0
        for fits, batch in zip(self._fits, rows, strict=True):
            spent, seen = spent + fits.iterations.get(solver, 0), seen + batch
            if seen / total in ends:
                found.append({"share": seen / total, "iterations": spent})
        return found
