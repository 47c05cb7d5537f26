"""scikit-learn as the peer of models: it learns from all rows of the join what Headrace learns from its payloads.

Both are timed as their users would run them: the rows of all batches so far are read, joined by pandas and given to
scikit-learn; Headrace reads the payload of its last step and fits. A table with a column per level that does not fit
in memory is not made: a regression is then compared after an earlier batch, when fewer rows joined. scikit-learn is not
needed to run a benchmark; without it, a row says so.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.datasets import Dataset
from headrace.errors import HeadraceError
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments
from headrace.learn.regression import LinearRegression

REGRESSION, INFORMATION = "scikit-learn, LinearRegression", "scikit-learn, mutual_info_score"
MOST_NUMBERS = 2e7  # of the table that scikit-learn gets: 160 MB, of which it makes copies, and seconds to minutes
_PREDICTIONS = 1e-6  # of the label's standard deviation: coefficients of features that are nearly collinear differ more
_NATS = 1e-9

Numbers = NDArray[np.float64]
Row = dict[str, Any]


def missing() -> str:
    """Why scikit-learn cannot be asked; empty if it can."""
    there = importlib.util.find_spec("sklearn") is not None
    return "" if there else "scikit-learn is not installed: pip install scikit-learn"


def not_run(case: str, why: str) -> Row:
    """The row of a peer that was not run."""
    return {
        "system": "scikit-learn",
        "case": case,
        "rows": 0,
        "seconds": 0.0,
        "batches": 0,
        "finished": False,
        "not_run": why,
    }


def joined_rows(data: Dataset, paths: Mapping[str, list[str]]) -> pd.DataFrame:
    """The natural join of the tables of a data set, from their files, by pandas."""
    joined: pd.DataFrame | None = None
    for spec in data.tables:
        read = pa.concat_tables(pq.ParquetFile(path).read() for path in paths[spec.name]).to_pandas()
        joined = read if joined is None else joined.merge(read)
    assert joined is not None
    return joined


# -- regression ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What Headrace holds after so many batches, and how long it took to read it."""

    batches: int
    payload: Moments | MixedMoments
    reading: float = 0.0  # seconds

    @property
    def numbers(self) -> float:
        """How many numbers the table of joined rows has, with a column per level."""
        payload = self.payload
        if isinstance(payload, Moments):
            return payload.count * len(payload.features)
        levels = sum(len(payload.levels(name)) for name in payload.categorical)
        return payload.count * (len(payload.continuous.features) + levels)

    @property
    def fits_in_memory(self) -> bool:
        """Whether scikit-learn can be given that table."""
        return 0 < self.numbers <= MOST_NUMBERS


def regression(case: str, data: Dataset, seen: Seen | None, paths: Mapping[str, list[str]]) -> Row:
    """Fit the label of a data set to all other features by both, and compare what they predict for the joined rows."""
    if why := missing():
        return not_run(case, why)
    if seen is None or not all(paths.values()):
        many = f"1 to {MOST_NUMBERS:,.0f} numbers"
        return not_run(case, f"there is no batch after which the joined rows, with a column per level, are {many}")
    start = time.perf_counter()
    joined = joined_rows(data, paths)
    joining = time.perf_counter() - start
    start = time.perf_counter()
    theirs = _by_scikit_learn(data, joined, seen)
    fitting = time.perf_counter() - start
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data sets have features that depend on one another
        ours = LinearRegression(data.label).fit(seen.payload)
    own = seen.reading + time.perf_counter() - start
    label = joined[data.label].to_numpy(np.float64)
    difference = float(np.abs(np.asarray(ours.predict(joined), np.float64) - theirs).max() / (label.std() or 1.0))
    if not difference <= _PREDICTIONS:
        raise HeadraceError(
            f"Headrace and scikit-learn disagree after {seen.batches} batches: predictions differ by up to "
            f"{difference:.1e} of the label's standard deviation",
            way_out="Report this with the command that you ran: one of them is wrong.",
        )
    return {
        "system": "scikit-learn",
        "case": case,
        "rows": len(joined),
        "seconds": joining + fitting,
        "joining_seconds": joining,
        "fitting_seconds": fitting,
        "headrace_seconds": own,
        "batches": seen.batches,
        "finished": True,
        "difference": difference,
    }


def _by_scikit_learn(data: Dataset, joined: pd.DataFrame, seen: Seen) -> Numbers:
    """Fit, and return the predictions for the rows that it was fitted to."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression as Sklearn
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    names = [name for name in data.features if name != data.label]
    categorical = list(seen.payload.categorical) if isinstance(seen.payload, MixedMoments) else []
    encoder = OneHotEncoder(drop="first", sparse_output=False)
    columns = ColumnTransformer([("levels", encoder, categorical)], remainder="passthrough", sparse_threshold=0)
    model = make_pipeline(columns, Sklearn())
    features = joined[names].astype({name: np.float64 for name in names if name not in categorical})
    model.fit(features, joined[data.label].to_numpy(np.float64))
    return np.asarray(model.predict(features), np.float64)


# -- mutual information -------------------------------------------------------------------------------------------


def mutual_information(
    data: Dataset, features: Sequence[str], ours: Numbers, paths: Mapping[str, list[str]], limit: float
) -> Row:
    """Ask `mutual_info_score` for each pair of features, until `limit` seconds are over, and compare with a matrix."""
    if why := missing():
        return not_run(INFORMATION, why)
    from sklearn.metrics import mutual_info_score

    pairs = list(combinations(range(len(features)), 2))
    start = time.perf_counter()
    joined = joined_rows(data, paths)
    columns = [joined[name].to_numpy() for name in features]
    joining = time.perf_counter() - start
    done, worst = 0, 0.0
    for i, j in pairs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is surprised that a category has as many levels as some have
            worst = max(worst, abs(float(mutual_info_score(columns[i], columns[j])) - ours[i, j]))
        done += 1
        if time.perf_counter() - start > limit:
            break
    seconds = time.perf_counter() - start
    if not worst <= _NATS:
        raise HeadraceError(
            f"Headrace and scikit-learn disagree by up to {worst:.1e} nats of mutual information",
            way_out="Report this with the command that you ran: one of them is wrong.",
        )
    row: Row = {"system": "scikit-learn", "case": INFORMATION, "seconds": seconds, "joining_seconds": joining}
    row |= {"pairs": len(pairs), "pairs_done": done, "finished": done == len(pairs), "difference": worst}
    if done < len(pairs):
        row["stopped"] = f"{seconds:,.0f} s were over with {done:,} of {len(pairs):,} pairs"
    return row
