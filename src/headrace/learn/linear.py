"""What linear models have in common: terms that are columns or products of two, predictions, and R squared.

A product of columns is a feature like any other once the query has it as a column. So a model that wants products says
so in what it `needs`, and makes them itself in a table that it predicts for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.learn import frames
from headrace.learn.grouped import linear_by_group
from headrace.learn.learner import MIXED, Derived, Learner, Needs
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Doubles, Moments, instead, listed
from headrace.learn.normal_equations import check_finite
from headrace.learn.polynomial import product_sql, products_of, with_products
from headrace.learn.reference import check_columns, fitted_terms, reference_levels
from headrace.learn.terms import UNKNOWN, Term


class NotConvergedWarning(UserWarning):
    """A descent that was stopped before it reached its tolerance."""


class Linear(Learner):
    """A label that is predicted by a weighted sum of terms."""

    shown: ClassVar[tuple[str, ...]] = (
        *("coef_", "intercept_", "feature_names_", "levels_", "reference_", "iterations_", "count_"),
    )

    label: str
    features: tuple[str, ...] | None
    polynomial: tuple[str, ...]
    drop: str | dict[str, str] | None
    unknown: str

    coef_: Doubles
    intercept_: float
    feature_names_: tuple[str, ...]
    levels_: dict[str, pa.Array]
    reference_: dict[str, Any]
    count_: int
    iterations_: int

    def take_terms(
        self,
        label: str,
        features: Sequence[str] | None,
        polynomial: Sequence[str],
        drop: str | Mapping[str, Any] | None,
        unknown: str,
    ) -> None:
        """Set which terms there are; refuses those that make no sense."""
        for what, names in (("features", features), ("polynomial", polynomial)):
            if isinstance(names, str):
                raise SchemaError(f"{what} is the string {names!r}", way_out=f"pass a list: [{names!r}]")
        chosen = None if features is None else tuple(features)
        if chosen is not None:
            check_features(label, chosen)
        if polynomial:
            check_features(label, tuple(polynomial))
        if isinstance(drop, str) and drop != "first":
            raise SchemaError(f"drop={drop!r} is not known", way_out='use "first", None, or {feature: value}')
        if unknown not in UNKNOWN:
            raise SchemaError(f"unknown={unknown!r} is not known", way_out=instead([unknown], UNKNOWN))
        self.label, self.features, self.polynomial = label, chosen, tuple(polynomial)
        # As text, which is how levels are compared with it: any value can then be written down.
        self.drop = {name: str(value) for name, value in drop.items()} if isinstance(drop, Mapping) else drop
        self.unknown = unknown

    @property
    def products(self) -> dict[str, tuple[str, str]]:
        """The squares and products that are terms: the two columns of each, by its name."""
        return products_of(self.polynomial)

    def needs(self) -> Needs:
        derived = tuple(Derived(name, product_sql(*pair)) for name, pair in self.products.items())
        columns = None if self.features is None else (*self.features, *self.products, self.label)
        return Needs(columns, MIXED, derived)

    def selected(self, payload: Moments | MixedMoments) -> Moments:
        """The moments of the terms, with the label as the last of them; each level but a reference is a term."""
        self.levels_, self.reference_ = {}, {}
        if not isinstance(payload, MixedMoments):
            return self._chosen(payload, self.features)
        if self.label in payload.categorical:
            raise SchemaError(
                f"the label {self.label!r} is categorical, and a regression predicts numbers",
                way_out=instead([self.label], payload.continuous.features),
            )
        if self.features is not None:
            _check_label(self.label, payload.continuous.features)
            payload = payload.select((*self.features, *self.products, self.label))
        check_columns(payload)
        dropped = reference_levels(payload, self.drop)
        columns = payload.one_hot(dropped)
        self.levels_ = {name: payload.levels(name) for name in payload.categorical}
        self.reference_ = {name: self.levels_[name][code].as_py() for name, code in dropped.items()}
        # A category with one level, or none, is a feature all the same, though it has no column.
        check_features(self.label, tuple(name for name in payload.features if name != self.label))
        others = tuple(name for name in columns.features if name != self.label)
        return columns.select((*others, self.label))

    def _chosen(self, moments: Moments, names: tuple[str, ...] | None) -> Moments:
        _check_label(self.label, moments.features)
        if names is None:
            names = tuple(name for name in moments.features if name != self.label and name not in self.products)
        check_features(self.label, (*names, *self.products))
        return moments.select((*names, *self.products, self.label))

    def terms(self) -> list[Term]:
        """The fitted model as a weight per number and per level."""
        return fitted_terms(self.feature_names_, self.coef_, self.levels_, self.reference_, self.unknown)

    def rows(self) -> list[dict[str, Any]]:
        """One row: the count of training rows, the intercept and the coefficients."""
        self.need_fit("coef_")
        coefficients = dict(zip(self.feature_names_, self.coef_.tolist(), strict=True))
        return [{"count": self.count_, "intercept": self.intercept_} | coefficients]

    def predict(self, frame: Any) -> Any:
        """Predict the label for rows of a pandas, Arrow or Spark table; other columns are ignored.

        pandas gives a Series named "prediction", Arrow an array, Spark the DataFrame with a column "prediction" (or
        with that column replaced). Where a feature is missing in a row, so is the prediction.
        """
        self.need_fit("coef_")
        wide = with_products(frame, self.products)
        return self._narrow(frame, frames.predict(wide, self.terms(), self.intercept_))

    def predict_by_group(self, frame: Any, groups: Sequence[str], models: Mapping[tuple[Any, ...], Any]) -> Any:
        if not frames.is_spark(frame):
            return super().predict_by_group(frame, groups, models)
        return self._narrow(frame, linear_by_group(with_products(frame, self.products), groups, models))

    def _narrow(self, given: Any, predicted: Any) -> Any:
        """Take products off again that a DataFrame of Spark was given."""
        if not frames.is_spark(given):
            return predicted
        return predicted.drop(*(name for name in self.products if name not in given.columns))

    def score(self, data: Any) -> float:
        """Return R^2, the share of the label's variance that is predicted, on moments or on a table.

        Rows of a table that lack the label or a feature do not count. Where the label does not vary, the score is
        1 if it is always predicted exactly and 0 otherwise, as in scikit-learn.
        """
        self.need_fit("coef_")
        if isinstance(data, MixedMoments):
            data = data.one_hot()
        if not isinstance(data, Moments):
            wide = with_products(data, self.products)
            residual, total = frames.squares(wide, self.label, self.terms(), self.intercept_)
        else:
            moments = data.select((*self.feature_names_, self.label))
            check_finite(moments)
            centred, signed = moments.centred(), np.append(-self.coef_, 1.0)
            offset = float(signed @ moments.mean) - self.intercept_
            residual = max(0.0, float(signed @ centred @ signed)) + moments.count * offset**2
            total = float(centred[-1, -1])
        if total == 0:
            return 1.0 if residual == 0 else 0.0
        return 1.0 - residual / total


def _check_label(label: str, features: Sequence[str]) -> None:
    if label not in features:
        raise SchemaError(f"there is no feature {label!r} to use as the label", way_out=instead([label], features))


def check_features(label: str, features: tuple[str, ...]) -> None:
    """Refuse no features, the label among them, or one of them twice."""
    if not features:
        raise SchemaError(f"there is no feature to predict {label!r} from", way_out="choose at least one")
    if label in features:
        raise SchemaError(f"the label {label!r} is among the features", way_out="leave it out of them")
    twice = sorted({name for name in features if features.count(name) > 1})
    if twice:
        raise SchemaError(f"{listed(twice)} is among the features more than once", way_out="name each feature once")
