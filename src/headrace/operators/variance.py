"""VARIANCE and STDDEV from a count, a sum and a sum of squares.

The textbook formula subtracts two large numbers that are nearly equal, which is why plain doubles may not use it. Here
both are kept to about 48 digits, and n times the sum of squares less the square of the sum is taken in all of them
before anything is rounded: values that are all the same have a variance of exactly 0, however large they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.rings import Compensated, Payload


def spread(function: str, ring: Compensated, present: NDArray[np.int64], total: Payload, squares: Payload) -> pa.Array:
    """Compute var_pop, var_samp, stddev_pop or stddev_samp per group; `present` is its number of values.

    A group without a value gives NULL, and so does a sample of one.
    """
    count, sample = present.astype(np.float64), function.endswith("_samp")
    missing = present <= int(sample)
    difference = ring.add(ring.multiply(ring.lift(count), squares), ring.negate(ring.multiply(total, total)))
    # A single value has no spread, whatever rounding left of its square; and no spread is negative.
    scatter = np.where(present > 1, np.maximum(ring.values(difference), 0.0), 0.0)
    values = scatter / np.where(missing, 1.0, count) / np.where(missing, 1.0, count - sample)
    if function.startswith("stddev"):
        values = np.sqrt(values)
    return pa.array(values, pa.float64(), mask=missing)
