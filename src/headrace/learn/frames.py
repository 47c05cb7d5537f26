"""Predictions for tables of any kind: pandas and Arrow at once, Spark as an expression that Spark evaluates itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn.moments import instead, listed
from headrace.learn.terms import Number, Term, spark_term

NAME = "prediction"


def predict(frame: Any, terms: Sequence[Term], intercept: float) -> Any:
    """Predict per row; the kind of table decides what is returned (see `LinearRegression.predict`)."""
    if is_spark(frame):
        check_columns(frame.columns, [term.name for term in terms])
        return frame.withColumn(NAME, expression(terms, intercept))
    if not isinstance(frame, pd.DataFrame | pa.Table | pa.RecordBatch):
        raise SchemaError(
            f"predict was given a {type(frame).__name__}",
            way_out="pass a pandas DataFrame, an Arrow table or a Spark DataFrame with a column for each feature",
        )
    check_columns(_names(frame), [term.name for term in terms])
    predicted = np.full(len(frame), intercept)
    for term in terms:
        if isinstance(term, Number):
            predicted += term.weight * columns_of(frame, [term.name])[0]
        else:
            predicted += term.contribution(_arrow(frame, term.name))
    if isinstance(frame, pd.DataFrame):
        return pd.Series(predicted, index=frame.index, name=NAME)
    return pa.array(predicted, from_pandas=True)


def squares(frame: Any, label: str, terms: Sequence[Term], intercept: float) -> tuple[float, float]:
    """Return the sum of squared residuals of a table, and that of the label's differences from its mean."""
    if is_spark(frame):
        return _spark_squares(frame, label, terms, intercept)
    predicted = np.asarray(predict(frame, terms, intercept), np.float64)
    actual = columns_of(frame, [label])[0]
    there = ~(np.isnan(predicted) | np.isnan(actual))
    actual = actual[there]
    if not len(actual):
        raise _no_rows(label)
    return float(np.sum((actual - predicted[there]) ** 2)), float(np.sum((actual - actual.mean()) ** 2))


def is_spark(frame: Any) -> bool:
    """Whether a table is a DataFrame of Spark."""
    # By name, because learning from moments must not need Spark; a DataFrame of Spark Connect is another class.
    return any(kind.__module__.startswith("pyspark.sql") for kind in type(frame).__mro__)


def expression(terms: Sequence[Term], intercept: float) -> Any:
    """A prediction as an expression that Spark evaluates."""
    from pyspark.sql import functions as F

    total = F.lit(float(intercept))
    for term in terms:
        total = total + spark_term(term)
    return total


def spark_column(name: str) -> Any:
    """Return a column of Spark as DOUBLE, by its name, which may have any characters."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`").cast("double")


def _spark_squares(frame: Any, label: str, terms: Sequence[Term], intercept: float) -> tuple[float, float]:
    from pyspark.sql import functions as F

    check_columns(frame.columns, [*(term.name for term in terms), label])
    actual = spark_column(label)
    residual = actual - expression(terms, intercept)
    pairs = frame.select(actual.alias("actual"), residual.alias("residual"))
    counted = pairs.where("residual IS NOT NULL AND NOT isnan(residual)")
    found = counted.agg(
        F.count("*").alias("n"), F.sum(F.expr("residual * residual")).alias("sse"), F.var_pop("actual").alias("var")
    ).first()
    if not found["n"]:
        raise _no_rows(label)
    return float(found["sse"]), float(found["n"] * found["var"])


def columns_of(frame: Any, names: Sequence[str]) -> list[NDArray[np.float64]]:
    """Columns of a table in memory as doubles, NaN where a value is missing."""
    check_columns(_names(frame), names)
    found = []
    for name in names:
        try:
            if isinstance(frame, pd.DataFrame):
                found.append(frame[name].to_numpy(np.float64, na_value=np.nan))
            else:
                column = frame.column(name).cast(pa.float64(), safe=False)
                found.append(np.asarray(column.to_numpy(zero_copy_only=False), np.float64))
        except (TypeError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"column {name!r} is not one of numbers: {error}", way_out="convert it to numbers first"
            ) from error
    return found


def _names(frame: Any) -> list[Any]:
    return list(frame.columns) if isinstance(frame, pd.DataFrame) else frame.schema.names


def _arrow(frame: Any, name: str) -> pa.Array | pa.ChunkedArray:
    if not isinstance(frame, pd.DataFrame):
        return frame.column(name)
    try:
        return pa.array(frame[name], from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"column {name!r} has values of several types: {error}", way_out="convert it first"
        ) from error


def check_columns(known: Sequence[Any], needed: Sequence[str]) -> None:
    """Refuse a table that lacks columns, or has one of them twice."""
    missing = [name for name in needed if name not in known]
    if missing:
        raise SchemaError(
            f"the table lacks {listed(missing)}",
            way_out=instead(missing, [name for name in known if isinstance(name, str)]),
        )
    twice = [name for name in needed if list(known).count(name) > 1]
    if twice:
        raise SchemaError(f"the table has {listed(twice)} more than once", way_out="rename or drop the others")


def _no_rows(label: str) -> NotEnoughDataError:
    return NotEnoughDataError(
        f"no row of the table has {label!r} and all features", way_out="score on rows in which nothing is missing"
    )
