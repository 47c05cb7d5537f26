"""Naive Bayes over categories: a label from the counts of its pairs with each feature.

It needs C_0, C_Y and C_XY of a label Y and each feature X (Section 8.2), so it follows the data as mutual information
does, and reads no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn import frames, levels
from headrace.learn.bins import binned, bins_of, derived_of
from headrace.learn.counts import Counts, Integers, check_categories, chosen
from headrace.learn.learner import CATEGORIES, Learner, Needs
from headrace.learn.moments import Doubles


class NaiveBayes(Learner):
    """The most likely level of a label, from features that are taken as independent given the label.

    Equal to scikit-learn's `CategoricalNB(alpha=alpha)` on the rows of the join, whose categories are the levels that
    occur in it.

    >>> from headrace.learn.counted_rows import CountedRows
    >>> rows = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "yes"]}
    >>> model = NaiveBayes("play").fit(CountedRows(rows))
    >>> model.predict(pd.DataFrame({"sky": ["sun", "rain"]})).tolist()
    ['yes', 'yes']
    >>> model.predict_proba(pd.DataFrame({"sky": ["sun", "rain"]})).round(3).to_dict("list")
    {'no': [0.156, 0.357], 'yes': [0.844, 0.643]}

    Parameters
    ----------
    label
        The column to predict.
    features
        The columns to predict it from, all categories; all others of the query, if left out.
    alpha
        Added to each count, so that what was never seen is unlikely rather than impossible.
    fit_prior
        Whether levels of the label are as likely as they are frequent, or all equally likely.
    bins
        For numbers that are no categories, the inner edges of their bins: {"price": [100, 200]} makes three.
    """

    shown: ClassVar[tuple[str, ...]] = (
        *("classes_", "class_count_", "class_log_prior_", "feature_names_", "levels_", "category_count_"),
        *("feature_log_prob_", "count_", "predict_proba"),
    )

    classes_: list[Any]
    class_count_: Integers
    class_log_prior_: Doubles
    feature_names_: tuple[str, ...]
    levels_: dict[str, list[Any]]
    category_count_: dict[str, Integers]
    feature_log_prob_: dict[str, Doubles]
    count_: int

    def __init__(
        self,
        label: str,
        features: Sequence[str] | None = None,
        alpha: float = 1.0,
        *,
        fit_prior: bool = True,
        bins: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        check_categories(features, label)
        if not 0 < alpha < np.inf:
            raise SchemaError(f"alpha={alpha} is out of range", way_out="choose a positive number, as 1 or 1e-9")
        self.label, self.alpha, self.fit_prior = label, float(alpha), bool(fit_prior)
        self.features = None if features is None else tuple(features)
        self.bins = bins_of(bins)

    def needs(self) -> Needs:
        columns = None if self.features is None else (*self.features, self.label)
        return Needs(columns, CATEGORIES, derived_of(self.bins))

    def says(self) -> str:
        return f"naive Bayes of {self.label}, with {self.alpha:g} added to each count"

    def fit(self, payload: Counts) -> NaiveBayes:
        """Learn from counts; costs one logarithm per level of a feature and level of the label."""
        names = chosen(payload, self.features, self.label)[:-1]
        if not names:
            raise SchemaError(f"there is no feature to predict {self.label!r} from", way_out="choose at least one")
        classes = levels.ordered(payload, self.label)
        self.classes_, self.class_count_ = classes.values, classes.counts
        log_count = np.log(self.class_count_)
        flat = np.full(len(log_count), -np.log(len(log_count)))
        self.class_log_prior_ = log_count - np.log(self.class_count_.sum()) if self.fit_prior else flat
        self.levels_, self.category_count_, self.feature_log_prob_ = {}, {}, {}
        for name in names:
            own = levels.ordered(payload, name)
            at_class, at_level, times = payload.pair_counts(self.label, name)
            table = np.zeros((len(classes.values), len(own.values)), np.int64)
            table[classes.place[at_class], own.place[at_level]] = times
            smoothed = table + self.alpha
            self.levels_[name], self.category_count_[name] = own.values, table
            self.feature_log_prob_[name] = np.log(smoothed) - np.log(smoothed.sum(axis=1, keepdims=True))
        self.feature_names_, self.count_ = names, round(payload.count)
        return self

    def rows(self) -> list[dict[str, Any]]:
        """One row per level of the label, feature and level of it, all as text: how often, and how likely."""
        self.need_fit("classes_")
        return [
            {
                "class": levels.text(label),
                "feature": name,
                "level": levels.text(level),
                "count": int(self.category_count_[name][i, j]),
                "log_probability": float(self.feature_log_prob_[name][i, j]),
            }
            for name in self.feature_names_
            for i, label in enumerate(self.classes_)
            for j, level in enumerate(self.levels_[name])
        ]

    def predict(self, frame: Any) -> Any:
        """Predict the label for rows of a pandas, Arrow or Spark table; other columns are ignored.

        pandas gives a Series named "prediction", Arrow an array, Spark the DataFrame with a column "prediction". Where
        a feature is missing in a row, or has a level that no training row has, there is no prediction.
        """
        self.need_fit("classes_")
        if frames.is_spark(frame):
            from headrace.learn.bayes_on_spark import with_prediction

            return with_prediction(self, frame)
        joint = self._joint(frame)
        known = ~np.isnan(joint[:, 0])
        best = np.argmax(np.where(known[:, None], joint, 0.0), axis=1)
        column = pa.array(self.classes_).take(pa.array(best, mask=~known))
        if isinstance(frame, pd.DataFrame):
            return pd.Series(column.to_pandas().to_numpy(), index=frame.index, name=frames.NAME)
        return column

    def predict_proba(self, frame: Any) -> Any:
        """How likely each level of the label is, for rows of a pandas or Arrow table: a column per level."""
        self.need_fit("classes_")
        if frames.is_spark(frame):
            raise SchemaError("predict_proba takes no DataFrame of Spark", way_out="use predict, or frame.toPandas()")
        joint = self._joint(frame)
        likely = np.exp(joint - joint.max(axis=1, keepdims=True, initial=-np.inf))
        shares = likely / likely.sum(axis=1, keepdims=True)
        if isinstance(frame, pd.DataFrame):
            return pd.DataFrame(shares, index=frame.index, columns=self.classes_)
        return pa.table({levels.text(c): pa.array(shares[:, i], from_pandas=True) for i, c in enumerate(self.classes_)})

    def score(self, data: Any) -> float:
        """The share of rows of a pandas or Arrow table that are predicted right, among those with a prediction."""
        self.need_fit("classes_")
        if not isinstance(data, pd.DataFrame | pa.Table):
            raise SchemaError(
                "the share of right predictions does not follow from counts", way_out="give a pandas or Arrow table"
            )
        frames.check_columns(list(data.columns) if isinstance(data, pd.DataFrame) else data.column_names, [self.label])
        actual = levels.codes(binned(data, self.bins, [self.label]), self.label, self.classes_)
        joint = self._joint(data)
        known = ~np.isnan(joint[:, 0])
        if not known.any():
            raise NotEnoughDataError("no row has a prediction", way_out="score on rows in which nothing is missing")
        return float((np.argmax(joint[known], axis=1) == actual[known]).mean())

    def _joint(self, frame: Any) -> Doubles:
        """The logarithm of how likely each row and level of the label are together; NaN where that is not known."""
        if not isinstance(frame, pd.DataFrame | pa.Table | pa.RecordBatch):
            raise SchemaError(
                f"predict was given a {type(frame).__name__}",
                way_out="pass a pandas DataFrame, an Arrow table or a Spark DataFrame with a column for each feature",
            )
        known = list(frame.columns) if isinstance(frame, pd.DataFrame) else frame.schema.names
        frames.check_columns(known, self.feature_names_)
        frame = binned(frame, self.bins, self.feature_names_)
        joint = np.tile(self.class_log_prior_, (len(frame), 1))
        for name in self.feature_names_:
            at = levels.codes(frame, name, self.levels_[name])
            likely = self.feature_log_prob_[name].T[at]
            likely[at < 0] = np.nan
            joint += likely
        return joint
