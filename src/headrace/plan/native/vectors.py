"""Functions of NumPy over Arrow values, for what Arrow's own kernels do not offer.

NumPy knows no NULLs and Arrow's literals are no arrays; both are dealt with here, once, so that a rule is a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.native.rule import Datum


def elementwise(function: Callable[..., NDArray[Any]], type: pa.DataType, *data: Datum) -> Datum:
    """Apply a function of NumPy arrays to numbers, days and instants; NULL where any of them is.

    The function sees dates as days and timestamps as microseconds since 1970, and a one in place of a NULL. Its result
    must fit the type; otherwise Arrow refuses it.
    """
    arrays = [as_array(values) for values in data]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*map(numbers_of, arrays)))
    missing = [np.asarray(a.is_null().to_numpy(zero_copy_only=False)) for a in arrays if a.null_count]
    # A mask of one element is that of a literal.
    mask = np.array(np.broadcast_to(reduce(np.logical_or, missing), result.shape)) if missing else None
    out = pa.array(result, mask=mask)
    out = out if out.type == type else out.cast(_storage(type)).cast(type)
    return out[0] if all(isinstance(values, pa.Scalar) for values in data) else out


def as_array(values: Datum) -> pa.Array:
    """A column, or a column of one value."""
    return pa.repeat(values, 1) if isinstance(values, pa.Scalar) else values


def over_array(function: Callable[[pa.Array], pa.Array], values: Datum) -> Datum:
    """Apply a function of an array to an array or a scalar."""
    return function(as_array(values))[0] if isinstance(values, pa.Scalar) else function(values)


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Numbers, days or microseconds since 1970, with a one in place of a NULL."""
    storage = _storage(array.type)
    numbers = array if array.type == storage else array.cast(storage)
    filled = pc.fill_null(numbers, pa.scalar(1, storage)) if numbers.null_count else numbers
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _storage(type: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(type):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type) else type
