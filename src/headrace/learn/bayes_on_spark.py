"""Predictions of naive Bayes as an expression of Spark: a lookup per feature, a sum per class, and the largest sum."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.learn.bins import bin_sql
from headrace.learn.frames import NAME, check_columns

if TYPE_CHECKING:
    from headrace.learn.naive_bayes import NaiveBayes


def with_prediction(model: NaiveBayes, frame: Any) -> Any:
    """The DataFrame with a column for the prediction; NULL where a feature is missing or has an unknown level."""
    from pyspark.sql import functions as F

    check_columns(frame.columns, model.feature_names_)
    terms = [_likely(model, name) for name in model.feature_names_]
    joint = F.array(*(F.lit(float(prior)) for prior in model.class_log_prior_))
    for term in terms:
        joint = F.zip_with(joint, term, lambda left, right: left + right)
    # The first of equals, as NumPy's argmax.
    best = F.array_position(joint, F.array_max(joint))
    classes = F.array(*map(F.lit, model.classes_))
    known = reduce(lambda left, right: left & right, (term.isNotNull() for term in terms))
    return frame.withColumn(NAME, F.when(known, F.element_at(classes, best.cast("int"))))


def _likely(model: NaiveBayes, name: str) -> Any:
    """The logarithms of how likely a row's level is in each class, as an array; NULL if the level is not known."""
    from pyspark.sql import functions as F

    column = (
        F.expr(bin_sql(name, model.bins[name])) if name in model.bins else F.col("`" + name.replace("`", "``") + "`")
    )
    entries = []
    for level, likely in zip(model.levels_[name], model.feature_log_prob_[name].T, strict=True):
        entries += [F.lit(level), F.array(*(F.lit(float(value)) for value in likely))]
    return F.element_at(F.create_map(*entries), column) if entries else F.lit(None)
