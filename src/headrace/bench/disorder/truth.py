"""The oracle of the disorder benchmark: the answers of windows, which NumPy counts from all rows at once.

It shares nothing with the joins that are measured, not even a kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.disorder import Stream

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


def truth(
    left: Stream,
    right: Stream,
    length: int,
    first: int,
    count: int,
    *,
    summed: bool = False,
    moments: Numbers | None = None,
) -> Floats:
    """Count the pairs of equal keys, or sum the left values over them, in `count` tumbling windows from the first on.

    Parameters
    ----------
    moments : if given, only rows count that had arrived at the moment of their window.
    """
    sides = []
    numbers = np.unique(np.concatenate([left.key, right.key]), return_inverse=True)[1]
    keys = int(numbers.max(initial=0)) + 1
    for stream, key in ((left, numbers[: len(left)]), (right, numbers[len(left) :])):
        window = stream.event // length - first
        there = np.flatnonzero((window >= 0) & (window < count))
        if moments is not None:
            there = there[stream.arrival[there] <= moments[window[there]]]
        cell, place, rows = np.unique(window[there] * keys + key[there], return_inverse=True, return_counts=True)
        sides.append((cell, rows, np.bincount(place, stream.value[there], len(cell))))
    (left_cell, left_rows, left_sum), (right_cell, right_rows, _) = sides
    both, in_left, in_right = np.intersect1d(left_cell, right_cell, assume_unique=True, return_indices=True)
    weights = (left_sum if summed else left_rows)[in_left] * right_rows[in_right]
    return np.bincount(both // keys, weights, count).astype(np.float64)  # no weights are counted as integers
