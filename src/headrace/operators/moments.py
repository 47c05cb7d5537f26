"""VARIANCE, SKEWNESS, CORR and their kin, from counts and sums of powers and products.

The textbook formulas subtract large numbers that are nearly equal, which is why plain doubles may not use them. Here
all sums are kept to about 48 digits, and what is subtracted is taken in all of them before anything is rounded: values
that are all the same have a variance of exactly 0, however large they are.

With n values x and S_k the sum of their k-th powers, the sums of powers about the mean are

    n M_2 = n S_2 - S_1^2,    n^2 M_3 = n^2 S_3 - 3 n S_1 S_2 + 2 S_1^3,
    n^3 M_4 = n^3 S_4 - 4 n^2 S_1 S_3 + 6 n S_1^2 S_2 - 3 S_1^4,

and that of the products of two numbers is n C = n S_xy - S_x S_y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.rings import Compensated, Payload

_RING = Compensated(3)

Counts: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]
Side: TypeAlias = tuple[Payload, Payload | None]
"""The sum of a number, and that of its squares if it is needed."""


def moment(function: str, present: Counts, sums: Sequence[Payload]) -> pa.Array:
    """Compute a function of one number per group; a group that has too few values for it gives NULL.

    Parameters
    ----------
    present : how many values a group has.
    sums : those of the first powers of its values, of the second, and so on.
    """
    count = present.astype(np.float64)
    scatter = _scatter(present, sums[0], sums[1])
    if function in ("skewness", "kurtosis"):
        missing = (present <= 0) | (scatter == 0)
        divisor = np.where(missing, 1.0, scatter)
        central = _third(present, *sums) if function == "skewness" else _fourth(present, *sums)
        values = central / divisor**1.5 if function == "skewness" else central / divisor**2 - 3.0
        return pa.array(np.where(missing, 0.0, values), pa.float64(), mask=missing)
    sample = function.endswith("_samp")
    missing = present <= int(sample)
    values = scatter / np.where(missing, 1.0, count)
    if function != "scatter":
        values = values / np.where(missing, 1.0, count - sample)
    if function.startswith("stddev"):
        values = np.sqrt(values)
    return pa.array(values, pa.float64(), mask=missing)


def related(function: str, present: Counts, left: Side, right: Side, product: Payload) -> pa.Array:
    """Compute a function of two numbers per group, of which `present` rows have both.

    The regressions are those of the left number by the right one, as in REGR_SLOPE(y, x).
    """
    count, one = present.astype(np.float64), np.where(present > 0, present, 1)
    difference = _difference(_times(count, product), _RING.multiply(left[0], right[0]))
    together = np.where(present > 1, _RING.values(difference), 0.0)
    missing = present <= 0
    if function == "covar_samp":
        missing = present <= 1
        values = together / one / np.where(missing, 1, present - 1)
    elif function in ("covar_pop", "regr_sxy"):
        values = together / one / (one if function == "covar_pop" else 1)
    elif function == "corr":
        scales = _scatter(present, *_squared(left)), _scatter(present, *_squared(right))
        missing = (scales[0] == 0) | (scales[1] == 0)
        values = together / np.where(missing, 1.0, np.sqrt(scales[0])) / np.where(missing, 1.0, np.sqrt(scales[1]))
    else:
        scatter = _scatter(present, *_squared(right))
        missing = scatter == 0
        slope = together / np.where(missing, 1.0, scatter)
        if function == "regr_slope":
            values = slope
        elif function == "regr_intercept":
            rest = _difference(left[0], _RING.multiply(right[0], _RING.lift(slope)))
            values = _RING.values(rest) / one
        else:
            own = _scatter(present, *_squared(left))
            flat = own == 0  # a number that never changes is explained wholly
            values = np.where(flat, 1.0, slope * (together / np.where(flat, 1.0, own)))
    return pa.array(np.where(missing, 0.0, values), pa.float64(), mask=missing)


def _squared(side: Side) -> tuple[Payload, Payload]:
    total, squares = side
    assert squares is not None, "the squares are kept for whoever asks"
    return total, squares


def _scatter(present: Counts, total: Payload, squares: Payload) -> Doubles:
    """n M_2: n times the sum of squares about the mean."""
    difference = _difference(_times(present.astype(np.float64), squares), _RING.multiply(total, total))
    # A single value has no spread, whatever rounding left of its square; and no spread is negative.
    return np.where(present > 1, np.maximum(_RING.values(difference), 0.0), 0.0)


def _third(present: Counts, total: Payload, squares: Payload, cubes: Payload) -> Doubles:
    """n^2 M_3."""
    n, multiply = present.astype(np.float64), _RING.multiply
    cube = multiply(multiply(total, total), total)
    first = _difference(_times(n, _times(n, cubes)), _times(3.0 * n, multiply(total, squares)))
    return _RING.values(_RING.add(first, _times(np.full(len(n), 2.0), cube)))


def _fourth(present: Counts, total: Payload, squares: Payload, cubes: Payload, fourths: Payload) -> Doubles:
    """n^3 M_4."""
    n, multiply = present.astype(np.float64), _RING.multiply
    square = multiply(total, total)
    first = _difference(_times(n, fourths), _times(np.full(len(n), 4.0), multiply(total, cubes)))
    last = _difference(
        _times(6.0 * n, multiply(square, squares)), _times(np.full(len(n), 3.0), multiply(square, square))
    )
    return _RING.values(_RING.add(_times(n, _times(n, first)), last))


def _times(factor: Doubles, payload: Payload) -> Payload:
    return _RING.multiply(_RING.lift(factor), payload)


def _difference(left: Payload, right: Payload) -> Payload:
    return _RING.add(left, _RING.negate(right))
