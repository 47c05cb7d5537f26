"""Predictions by one model per group; rows of a group without a model get none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.learn.frames import NAME, check_columns, is_spark, spark_column
from headrace.learn.regression import LinearRegression

Models = Mapping[tuple[Any, ...], LinearRegression]


def predict_by_group(frame: Any, groups: Sequence[str], models: Models) -> Any:
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
        return pa.array(_on_pandas(frame.to_pandas(), groups, models).to_numpy(), from_pandas=True)
    return _on_pandas(frame, groups, models)


def _on_pandas(frame: pd.DataFrame, groups: Sequence[str], models: Models) -> pd.Series:
    check_columns(list(frame.columns), groups)
    predicted = np.full(len(frame), np.nan)
    columns = [frame[name].astype(object).where(frame[name].notna(), None) for name in groups]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for i, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(i)
    for key, at in rows.items():
        if key in models:
            predicted[at] = models[key].predict(frame.iloc[at]).to_numpy()
    return pd.Series(predicted, index=frame.index, name=NAME)


def _on_spark(frame: Any, groups: Sequence[str], models: Models) -> Any:
    """Join the coefficients, which are few, to the rows; Spark evaluates the sum."""
    from pyspark.sql import functions as F

    features = next(iter(models.values())).feature_names_ if models else ()
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
    same = [F.col("`" + g.replace("`", "``") + "`").eqNullSafe(F.col(n)) for g, n in zip(groups, names, strict=True)]
    joined = frame.join(coefficients, same, "left")
    total = F.col("__w")
    for i, name in enumerate(features):
        total = total + F.col(f"__w{i}") * spark_column(name)
    return joined.withColumn(NAME, total).drop(*names, *weights)
