"""Predictions by one model per group; rows of a group without a model get none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.learn.frames import NAME, check_columns, expression, is_spark, spark_column

if TYPE_CHECKING:
    from headrace.learn.learner import Learner
    from headrace.learn.linear import Linear

Key = tuple[Any, ...]


def predict_by_group(frame: Any, groups: Sequence[str], models: Mapping[Key, Learner]) -> Any:
    """Predict for each row by the model of its group; rows of a group without a model get none.

    Parameters
    ----------
    frame : a pandas DataFrame, an Arrow table or a Spark DataFrame with the groups and the features as columns.
    groups : the columns that name the group.
    models : the model of each group, by the values of these columns.
    """
    if is_spark(frame):
        return _on_spark(frame, groups, models)
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return pa.array(_on_rows(frame, groups, models), from_pandas=True)
    return pd.Series(_on_rows(frame, groups, models).to_numpy(), index=frame.index, name=NAME)


def _on_rows(frame: Any, groups: Sequence[str], models: Mapping[Key, Learner]) -> pd.Series:
    """Predict for rows in memory, by position."""
    rows: dict[Key, list[int]] = {}
    for i, key in enumerate(zip(*_values(frame, groups), strict=True)):
        rows.setdefault(key, []).append(i)
    parts = []
    for key, at in rows.items():
        if key in models:
            part = frame.iloc[at] if isinstance(frame, pd.DataFrame) else frame.take(pa.array(at, pa.int64()))
            predicted = models[key].predict(part)
            parts.append(pd.Series(predicted.to_numpy() if isinstance(predicted, pd.Series) else predicted, at))
    if not parts:
        return pd.Series(np.full(len(frame), np.nan))
    return pd.concat(parts).reindex(range(len(frame)))


def _values(frame: Any, groups: Sequence[str]) -> list[list[Any]]:
    if isinstance(frame, pd.DataFrame):
        check_columns(list(frame.columns), groups)
        return [frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in groups]
    check_columns(frame.schema.names, groups)
    return [frame.column(name).to_pylist() for name in groups]


def _on_spark(frame: Any, groups: Sequence[str], models: Mapping[Key, Learner]) -> Any:
    """Each group's rows by an expression of their own, and the others without a prediction, put together."""
    from pyspark.sql import functions as F

    check_columns(frame.columns, groups)
    parts, others = [], F.lit(True)
    for key, model in models.items():
        same = F.lit(True)
        for group, value in zip(groups, key, strict=True):
            same = same & _quoted(group).eqNullSafe(F.lit(value))
        parts.append(model.predict(frame.where(same)))
        others = others & ~same
    kind = dict(parts[0].dtypes)[NAME] if parts else "double"
    parts.append(frame.where(others).withColumn(NAME, F.lit(None).cast(kind)))
    return reduce(lambda left, right: left.unionByName(right), parts)


def linear_by_group(frame: Any, groups: Sequence[str], models: Mapping[Key, Linear]) -> Any:
    """Predict on Spark by linear models: join the coefficients, which are few, to the rows; Spark evaluates the sum."""
    from pyspark.sql import functions as F

    features = next(iter(models.values())).feature_names_ if models else ()
    if any(model.levels_ for model in models.values()):
        return _by_level(frame, groups, models)
    check_columns(frame.columns, [*groups, *features])
    if not models:
        return frame.withColumn(NAME, F.lit(None).cast("double"))
    names = [f"__g{i}" for i in range(len(groups))]
    weights = ["__w", *(f"__w{i}" for i in range(len(features)))]
    kinds = {name: kind for name, kind in frame.dtypes if name in groups}
    rows = [(*key, float(m.intercept_), *map(float, m.coef_)) for key, m in models.items()]
    types = [f"{name} {kinds[group]}" for name, group in zip(names, groups, strict=True)]
    schema = ", ".join([*types, *(f"{name} double" for name in weights)])
    coefficients = F.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    same = [_quoted(group).eqNullSafe(F.col(name)) for group, name in zip(groups, names, strict=True)]
    joined = frame.join(coefficients, same, "left")
    total = F.col("__w")
    for i, name in enumerate(features):
        total = total + F.col(f"__w{i}") * spark_column(name)
    return joined.withColumn(NAME, total).drop(*names, *weights)


def _by_level(frame: Any, groups: Sequence[str], models: Mapping[Key, Linear]) -> Any:
    """One expression per group, since each group has levels of its own."""
    from pyspark.sql import functions as F

    check_columns(frame.columns, [*groups, *(term.name for term in next(iter(models.values())).terms())])
    chosen: Any = F
    for key, model in models.items():
        same = F.lit(True)
        for group, value in zip(groups, key, strict=True):
            same = same & _quoted(group).eqNullSafe(F.lit(value))
        chosen = chosen.when(same, expression(model.terms(), model.intercept_))
    return frame.withColumn(NAME, chosen)


def _quoted(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
