"""The answers that a window join has emitted: a relation from (window, moment, final) to the numbers of the answer.

A new answer is a row with multiplicity 1. Where answers are revised, the row that it replaces gets multiplicity -1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.operators.kernel import ViewChange
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import COUNT
from headrace.window.answers import Answer
from headrace.window.exact import time_words, times_of
from headrace.window.spec import Times, WindowSpec

ANSWERS = "answers"
NUMBERS = ("value", "low", "high", "observed")

_Key = tuple[int, int, int]  # window, moment of the answer, whether it is final
_Row = tuple[float | None, ...]


@dataclass
class EmittedAnswers:
    """Collects the answers of one step.

    Parameters
    ----------
    runs : the answers of all steps before.
    """

    estimator: str
    runs: Sequence[AnyRun]

    def __post_init__(self) -> None:
        self._added: dict[_Key, tuple[_Row, int]] = {}  # numbers and multiplicity
        self._current: dict[int, tuple[_Key, _Row]] = {}
        self._summary = ViewChange()

    def add(self, answer: Answer, *, replaces: bool) -> None:
        """Add an answer; if `replaces`, remove the last answer of the same window."""
        key = (answer.window, answer.at, int(answer.final))
        row = self._row(answer)
        before = self._before(answer.window) if replaces else None
        if before is not None and before[0] == key:
            return
        if before is not None:
            self._change(before[0], before[1], -1)
        self._change(key, row, 1)
        self._current[answer.window] = (key, row)
        self._summary += ViewChange(inserted=1) if before is None else ViewChange(updated=1)

    def change(self) -> tuple[Run | None, ViewChange]:
        """Return the run that this step adds to the answers (None if there is none), and a summary."""
        added = {key: (row, times) for key, (row, times) in self._added.items() if times}
        if not added:
            return None, ViewChange()
        keys = sorted(added)
        words = time_words(np.array(keys, np.int64).T.copy())
        times = np.array([added[key][1] for key in keys], np.int64)
        columns = zip(*(added[key][0] for key in keys), strict=True)
        values = {name: pa.array(column, pa.float64()) for name, column in zip(NUMBERS, columns, strict=True)}
        return Run(words, (times,), values), self._summary

    def _change(self, key: _Key, row: _Row, times: int) -> None:
        self._added[key] = (row, self._added.get(key, (row, 0))[1] + times)

    def _before(self, window: int) -> tuple[_Key, _Row] | None:
        if window in self._current:
            return self._current[window]
        merged = as_set(self.runs).matching(COUNT, time_words(np.array([[window]])))
        if merged is None or not merged.rows:
            return None
        keys = times_of(merged.words[:, -1]).tolist()
        return (keys[0], keys[1], keys[2]), tuple(merged.values[name][-1].as_py() for name in NUMBERS)

    def _row(self, answer: Answer) -> _Row:
        if answer.final:
            numbers = (answer.observed,) * 4
        else:
            estimate = answer.estimates[self.estimator]
            numbers = (estimate.value, estimate.low, estimate.high, answer.observed)
        return tuple(number if math.isfinite(number) else None for number in numbers)


def read_answers(spec: WindowSpec, runs: Sequence[AnyRun], *, diff: str | None = None) -> pa.Table:
    """Return answers as a table, in the order of windows; `diff` names a column for their multiplicities."""
    run = merge(COUNT, list(runs)) if runs else None  # type: ignore[arg-type]
    window, at, final = np.zeros((3, 0), np.int64) if run is None else times_of(run.words)
    columns = window_columns(spec, window) | {
        "emitted_at": _timestamps(at),
        **{name: pa.array([], pa.float64()) if run is None else run.values[name] for name in NUMBERS},
        "final": pa.array(final.astype(bool)),
    }
    table = pa.table(columns)
    if diff is not None:
        table = table.append_column(diff, pa.array(np.zeros(0, np.int64) if run is None else run.payload[0]))
    return table


def window_columns(spec: WindowSpec, window: Times) -> dict[str, pa.Array]:
    """Return the columns `window_start` and `window_end` of windows."""
    start = window * spec.slide
    return {"window_start": _timestamps(start), "window_end": _timestamps(start + spec.length)}


def _timestamps(micros: np.ndarray) -> pa.Array:
    return pa.array(np.ascontiguousarray(micros)).cast(pa.timestamp("us", "UTC"))
