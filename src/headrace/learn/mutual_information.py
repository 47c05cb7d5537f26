"""Mutual information: how much knowing one feature says of another, whatever the form of their dependence.

It follows from the counts of pairs of levels (Section 8.2), so it is fresh after every step. Counts are exact, and so
nothing drifts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from headrace.errors import SchemaError
from headrace.learn.bins import bins_of, derived_of
from headrace.learn.counts import Counts, check_categories, chosen, pairs_of, sum_of_logs
from headrace.learn.learner import CATEGORIES, Learner, Needs
from headrace.learn.moments import Doubles, instead


class MutualInformation(Learner):
    """The mutual information of each pair of categorical features, and the entropy of each, in nats.

    Equal to scikit-learn's `mutual_info_score` on the rows of the join. See `ChowLiuTree` for an example.

    Parameters
    ----------
    features
        The features: columns of any type whose values are categories; all columns of the query, if left out.
    label
        The feature that the others are ranked for, as a column that is not among them.
    bins
        For numbers that are no categories, the inner edges of their bins: {"price": [100, 200]} makes three.
    """

    shown: ClassVar[tuple[str, ...]] = ("matrix_", "entropy_", "ranking_", "feature_names_", "count_", "ranking")

    matrix_: Doubles
    entropy_: Doubles
    feature_names_: tuple[str, ...]
    count_: int

    def __init__(
        self,
        features: Sequence[str] | None = None,
        label: str | None = None,
        bins: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        check_categories(features, label, least=1 if label is not None else 2)
        self.features = None if features is None else tuple(features)
        self.label, self.bins = label, bins_of(bins)

    def needs(self) -> Needs:
        more = () if self.label is None else (self.label,)
        columns = None if self.features is None else (*self.features, *more)
        return Needs(columns, CATEGORIES, derived_of(self.bins))

    def says(self) -> str:
        return "the mutual information of each pair of features" + (f", ranked for {self.label}" * bool(self.label))

    def fit(self, payload: Counts) -> MutualInformation:
        """Compute the matrix; costs a logarithm per pair of levels that occurs."""
        names = chosen(payload, self.features, self.label)
        self.matrix_ = information(payload, names)
        self.entropy_ = np.diagonal(self.matrix_).copy()
        self.feature_names_, self.count_ = names, round(payload.count)
        return self

    @property
    def ranking_(self) -> list[tuple[str, float]]:
        """The features with their information on the label, the most informative first."""
        if self.label is None:
            raise SchemaError(
                "there is no label to rank the features for", way_out="give one (label=...), or call ranking(label)"
            )
        return self.ranking(self.label)

    def ranking(self, label: str) -> list[tuple[str, float]]:
        """All other features with their information on one of them, the most informative first."""
        self.need_fit("matrix_")
        if label not in self.feature_names_:
            raise SchemaError(f"there is no feature {label!r}", way_out=instead([label], self.feature_names_))
        row = self.matrix_[self.feature_names_.index(label)].tolist()
        found = [(name, value) for name, value in zip(self.feature_names_, row, strict=True) if name != label]
        return sorted(found, key=lambda pair: pair[1], reverse=True)

    def rows(self) -> list[dict[str, Any]]:
        """One row per pair of features, and per feature with itself (its entropy)."""
        self.need_fit("matrix_")
        names = self.feature_names_
        pairs = [(i, i) for i in range(len(names))] + list(pairs_of(names))
        return [{"a": names[i], "b": names[j], "information": float(self.matrix_[i, j])} for i, j in sorted(pairs)]


def information(counts: Counts, names: Sequence[str]) -> Doubles:
    """The mutual information of each pair of features, with their entropies on the diagonal (Section 8.2).

    I(X, Y) = sum over x, y of C_XY / C_0 log(C_0 C_XY / (C_X C_Y)). With S for the sum of C log C, that is
    log C_0 + (S_XY - S_X - S_Y) / C_0, which needs one logarithm per count and none per pair of marginals.
    """
    n, m = float(counts.count), len(names)
    alone = sum_of_logs([counts.level_counts(name) for name in names])
    pairs = list(pairs_of(names))
    together = sum_of_logs([counts.pair_sizes(names[i], names[j]) for i, j in pairs])
    matrix = np.zeros((m, m))
    np.fill_diagonal(matrix, np.log(n) - alone / n)
    for (i, j), both in zip(pairs, together, strict=True):
        matrix[i, j] = matrix[j, i] = np.log(n) + (both - alone[i] - alone[j]) / n
    # What is below the rounding of sums as large as n log n is none.
    matrix[matrix < 4 * np.finfo(np.float64).eps * max(1.0, np.log(n))] = 0.0
    return matrix
