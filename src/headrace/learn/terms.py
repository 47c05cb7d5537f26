"""A linear model as terms: a weight per number, and per category a weight for each of its levels.

Predictions need no one-hot columns either: the level of a row is looked up, and its weight added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.learn.moments import Doubles

UNKNOWN = ("null", "reference")
"""What a level that the model has not seen is taken for: something without a prediction, or the reference level."""


@dataclass(frozen=True)
class Number:
    """A feature that is multiplied by its weight."""

    name: str
    weight: float


@dataclass(frozen=True)
class Levels:
    """A feature whose level has a weight.

    Parameters
    ----------
    values, weights
        The levels that were seen, and the weight of each: 0 for the reference level.
    unknown
        The weight of any other level; NaN if there is no prediction for it.
    """

    name: str
    values: pa.Array
    weights: Doubles
    unknown: float

    def contribution(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
        """The weight of each value; NaN where it is NULL."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        try:
            column = column.cast(self.values.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"column {self.name!r} is {column.type}, and the levels of the model are {self.values.type}: {error}",
                way_out=f"convert it to {self.values.type} first",
            ) from error
        at = pc.index_in(column, value_set=self.values)
        known = np.asarray(at.fill_null(len(self.values)).to_numpy(zero_copy_only=False), np.int64)
        out: NDArray[np.float64] = np.append(self.weights, self.unknown)[known]
        if column.null_count:
            out[np.asarray(column.is_null().to_numpy(zero_copy_only=False))] = np.nan
        return out


Term = Number | Levels


def numbers(features: Sequence[str], coef: Doubles) -> list[Term]:
    """The terms of a model without categories."""
    return [Number(name, float(weight)) for name, weight in zip(features, coef, strict=True)]


def spark_term(term: Term) -> Any:
    """A term as an expression that Spark evaluates."""
    from pyspark.sql import functions as F

    from headrace.learn.frames import spark_column

    if isinstance(term, Number):
        return F.lit(term.weight) * spark_column(term.name)
    column = F.col("`" + term.name.replace("`", "``") + "`")
    if not len(term.values):
        found = F.lit(None).cast("double")
    else:
        # Each level as a literal of its own type: values of other types are compared as Spark compares them.
        pairs = zip(term.values.to_pylist(), term.weights.tolist(), strict=True)
        table = F.create_map(*(part for value, weight in pairs for part in (F.lit(value), F.lit(weight))))
        found = F.try_element_at(table, column)
    if np.isnan(term.unknown):
        return found
    return F.coalesce(found, F.when(column.isNotNull(), F.lit(term.unknown)))
