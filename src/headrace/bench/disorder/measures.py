"""The measures of a method over all windows of all streams: errors, coverage of intervals, latency and speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.bench.disorder.methods import ESTIMATING, MethodAnswers
from headrace.bench.disorder.ratios import allowed_error
from headrace.bench.disorder.workload import LENGTH, Floats, Numbers, Sides, Workload

RECOVERY = 10  # windows over which errors are averaged


@dataclass(frozen=True)
class Sample:
    """The answers of one method over one stream, beside the true ones; the rows of the stream are not kept."""

    truth: Floats
    answers: MethodAnswers
    latency: float  # that 95% of the rows of answers do not exceed, in microseconds

    @classmethod
    def of(cls, sides: Sides, answers: MethodAnswers) -> Sample:
        """Measure what needs the rows of the stream."""
        latencies = _latencies(sides, answers)
        return cls(sides.truth, answers, float(np.quantile(latencies, 0.95)) if len(latencies) else math.nan)

    @property
    def errors(self) -> Floats:
        """The relative error per window; NaN where the true answer is 0, infinite where there is no answer."""
        off, size = np.abs(self.answers.value - self.truth), np.abs(self.truth)
        found: Floats = np.divide(off, size, out=np.full(len(size), np.nan), where=size > 0)
        found[(size > 0) & ~np.isfinite(found)] = np.inf
        return found


def row_of(
    query: str, data: str, workload: Workload, method: str, omega_ms: float, samples: Sequence[Sample]
) -> dict[str, Any]:
    """Return the row of results of one method at one omega."""
    answers = [sample.answers for sample in samples]
    error = np.stack([sample.errors for sample in samples])
    known = error[~np.isnan(error)]
    rows, seconds = sum(one.rows for one in answers), sum(one.seconds for one in answers)
    latencies = [sample.latency for sample in samples if math.isfinite(sample.latency)]
    row: dict[str, Any] = {
        "system": "headrace" if method in ESTIMATING else method,
        "case": f"{method} at {omega_ms:g} ms",
        "method": method,
        "omega_ms": omega_ms,
        "rows": rows,
        "seconds": seconds,
        "rows_per_s": rows / seconds,
        "windows": error.size,
        "empty_windows": int(error.size - len(known)),
        "mean_error": _mean(error),
        "p95_error": float(np.quantile(known, 0.95)) if len(known) and np.isfinite(known).all() else None,
        "latency_ms": float(np.mean(latencies) / 1e3) if latencies else None,
        "after_ms": _median_ms([one.after for one in answers]),
    }
    if method in ESTIMATING:
        row |= _intervals(samples)
        row["estimation_ms"] = _median_ms([one.estimation for one in answers])
        row["beside_ms"] = _median_ms([one.beside for one in answers])
    visible = workload.visible_at(round(omega_ms * 1e3))
    if workload.changes_at is not None and visible is not None:
        row |= _recovery(error, workload.changes_at, visible, allowed_error(query, data, omega_ms))
    wrong = next((one.wrong for one in answers if one.wrong), None)
    return row if wrong is None else row | {"wrong": wrong}


def _latencies(sides: Sides, answers: MethodAnswers) -> Floats:
    """Return, per row that an answer includes, the time from its arrival to the answer, in microseconds."""
    found = []
    for stream in (sides.left, sides.right):
        window = stream.event // LENGTH - sides.first
        at = np.flatnonzero((window >= 0) & (window < sides.count))
        moment = answers.moment[window[at]]
        there = stream.arrival[at] <= moment
        found.append((moment - stream.arrival[at])[there] + answers.after[window[at][there]] * 1e6)
    return np.concatenate(found)


def _intervals(samples: Sequence[Sample]) -> dict[str, Any]:
    truth = np.concatenate([sample.truth for sample in samples])
    low, high = (np.concatenate([getattr(sample.answers, name) for sample in samples]) for name in ("low", "high"))
    width = ((high - low)[truth != 0]) / np.abs(truth[truth != 0])
    return {
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
        "mean_width": _finite(width.mean()) if len(width) else None,
        "median_width": _finite(np.median(width)) if len(width) else None,
    }


def _recovery(error: Floats, changes: int, visible: int, allowed: float | None) -> dict[str, Any]:
    """Return after how many windows errors are back within their bound, by the mean over ten windows of all streams."""
    before = _mean(error[:, :changes])
    bound = None if before is None else max(1.5 * before, allowed or 0.0)
    after: Numbers = np.arange(visible, error.shape[1] - RECOVERY + 1)
    levels = [_mean(error[:, at : at + RECOVERY]) for at in after]
    back = (i for i, level in enumerate(levels) if bound is not None and level is not None and level <= bound)
    return {
        "error_before": before,
        "error_at_change": levels[0] if levels else None,
        "error_allowed": bound,
        "recovered_after": next(back, None),
    }


def _mean(errors: Floats) -> float | None:
    known = errors[~np.isnan(errors)]
    return _finite(known.mean()) if len(known) else None


def _median_ms(seconds: Sequence[Floats]) -> float:
    return float(np.median(np.concatenate(seconds)) * 1e3)


def _finite(value: Any) -> float | None:
    """Return a number, or None if JSON cannot hold it."""
    return float(value) if math.isfinite(value) else None
