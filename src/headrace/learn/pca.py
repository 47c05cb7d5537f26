"""Principal components from moments: the eigenvectors of the covariance matrix, which the payload has.

An eigenvector is determined up to its sign, which would flip between two steps. So the sign is fixed by a rule: the
entry of a component that is largest in size is positive (the first of them, if there are several).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn import frames
from headrace.learn.learner import Learner, Needs
from headrace.learn.moments import Doubles, Moments
from headrace.learn.normal_equations import check_finite
from headrace.learn.terms import numbers


class PCA(Learner):
    """The directions in which the rows of a view vary most, equal to scikit-learn's `PCA` up to the sign.

    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> table = np.stack([x, -x])
    >>> moments = Moments(("a", "b"), 4, table.sum(axis=1), table @ table.T)
    >>> model = PCA(n_components=1).fit(moments)
    >>> model.components_.round(4), model.explained_variance_ratio_.round(4)
    (array([[ 0.7071, -0.7071]]), array([1.]))

    Parameters
    ----------
    n_components
        How many components are kept; all, if left out.
    features
        The features; all numbers that the query has, if left out.
    scale
        Whether every feature is divided by its standard deviation first, so that units do not matter (then it is the
        PCA of the correlation matrix). A feature that does not vary is only centred.
    """

    shown: ClassVar[tuple[str, ...]] = (
        *("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"),
        *("mean_", "scale_", "noise_variance_", "feature_names_", "count_", "transform"),
    )

    components_: Doubles
    explained_variance_: Doubles
    explained_variance_ratio_: Doubles
    singular_values_: Doubles
    mean_: Doubles
    scale_: Doubles
    noise_variance_: float
    feature_names_: tuple[str, ...]
    count_: int

    def __init__(
        self, n_components: int | None = None, features: Sequence[str] | None = None, scale: bool = False
    ) -> None:
        if isinstance(features, str):
            raise SchemaError(f"features is the string {features!r}", way_out=f"pass a list: [{features!r}]")
        if n_components is not None and n_components < 1:
            raise SchemaError(f"n_components={n_components} is out of range", way_out="choose at least 1")
        if features is not None and n_components is not None and n_components > len(features):
            raise _too_many(n_components, len(features))
        self.n_components = n_components
        self.features = None if features is None else tuple(features)
        self.scale = bool(scale)

    def needs(self) -> Needs:
        return Needs(self.features)

    def says(self) -> str:
        some = "all" if self.n_components is None else f"the first {self.n_components}"
        return f"{some} principal components of the {'correlation' if self.scale else 'covariance'} matrix"

    def fit(self, payload: Moments) -> PCA:
        """Learn the components from moments; costs O(m^3) for m features, however many rows there are."""
        moments = payload if self.features is None else payload.select(self.features)
        m = len(moments.features)
        if self.n_components is not None and self.n_components > m:
            raise _too_many(self.n_components, m)
        check_finite(moments)
        if moments.count < 2:
            raise NotEnoughDataError(
                f"principal components need two rows at least, and there are {moments.count:g}",
                way_out="insert rows that join first",
            )
        variance = moments.centred() / (moments.count - 1)
        own = np.sqrt(np.diagonal(variance))
        # As scikit-learn's StandardScaler, which divides by the deviation of the population.
        deviation = own * np.sqrt((moments.count - 1) / moments.count)
        scale = np.where(deviation > 0, deviation, 1.0) if self.scale else np.ones(m)
        values, vectors = np.linalg.eigh(variance / np.outer(scale, scale))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        vectors = vectors * signs_of(vectors)[:, None]
        kept = m if self.n_components is None else self.n_components
        total = float(values.sum())
        self.components_, self.explained_variance_ = vectors[:kept], values[:kept]
        self.explained_variance_ratio_ = values[:kept] / total if total > 0 else np.zeros(kept)
        self.singular_values_ = np.sqrt(values[:kept] * (moments.count - 1))
        rest = values[kept : min(m, round(moments.count))]
        self.noise_variance_ = float(rest.mean()) if len(rest) else 0.0
        self.mean_, self.scale_ = moments.mean, scale
        self.feature_names_, self.count_ = moments.features, round(moments.count)
        return self

    def rows(self) -> list[dict[str, Any]]:
        """One row per component: its number, its variance, its share of all variance, and its direction."""
        self.need_fit("components_")
        measures = zip(self.components_, self.explained_variance_, self.explained_variance_ratio_, strict=True)
        return [
            {"component": i + 1, "variance": float(variance), "share": float(share)}
            | dict(zip(self.feature_names_, direction.tolist(), strict=True))
            for i, (direction, variance, share) in enumerate(measures)
        ]

    def transform(self, frame: Any) -> Any:
        """The rows of a pandas, Arrow or Spark table in terms of the components: columns `component_1` and so on.

        pandas and Arrow give a table of the components alone, Spark the DataFrame with these columns added.
        """
        self.need_fit("components_")
        names = [f"component_{i + 1}" for i in range(len(self.components_))]
        weights = self.components_ / self.scale_
        offsets = [-float(weight @ self.mean_) for weight in weights]
        terms = list(zip(names, weights, offsets, strict=True))
        if frames.is_spark(frame):
            frames.check_columns(frame.columns, self.feature_names_)
            return frame.withColumns({n: frames.expression(numbers(self.feature_names_, w), o) for n, w, o in terms})
        values = {n: frames.predict(frame, numbers(self.feature_names_, w), o) for n, w, o in terms}
        return pd.DataFrame(values) if isinstance(frame, pd.DataFrame) else pa.table(values)


def signs_of(vectors: Doubles) -> Doubles:
    """+1 or -1 per row, so that its largest entry becomes positive; entries within rounding of it count as equal."""
    size = np.abs(vectors)
    first = np.argmax(size >= size.max(axis=1, keepdims=True) * (1 - 1e-9), axis=1)
    signs: Doubles = np.where(vectors[np.arange(len(vectors)), first] < 0, -1.0, 1.0)
    return signs


def _too_many(components: int, features: int) -> SchemaError:
    return SchemaError(
        f"n_components={components} of {features} features", way_out=f"choose {features} at most, or leave it out"
    )
