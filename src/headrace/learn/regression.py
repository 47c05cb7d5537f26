"""Linear regression from moments: the rows of the join are never read, so that refitting takes microseconds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from headrace.errors import SchemaError
from headrace.learn.descent import descend
from headrace.learn.linear import Linear, NotConvergedWarning
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments, instead
from headrace.learn.normal_equations import NormalEquations, smallest_of

SOLVERS = ("cholesky", "gradient")


class CollinearWarning(UserWarning):
    """Features depend on one another: of the best models, the one with the smallest coefficients is returned."""


class LinearRegression(Linear):
    """Least squares with an intercept, and optionally a ridge penalty, over the moments of a view.

    The answer is that of scikit-learn's `LinearRegression`, or of its `Ridge(alpha=alpha)`, on the rows of the join.
    Where features depend on one another it is the one with the smallest coefficients, with a `CollinearWarning`.

    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> table = np.stack([x, 2 * x + 1])
    >>> moments = Moments(("x", "y"), 4, table.sum(axis=1), table @ table.T)
    >>> model = LinearRegression("y").fit(moments)
    >>> model.coef_, model.intercept_
    (array([2.]), 1.0)

    Parameters
    ----------
    label
        The feature to predict.
    features
        The features to predict it from; all others, if left out.
    alpha
        The weight of the squared coefficients in what is minimised; the intercept is not penalised.
    solver
        "cholesky" solves at once. "gradient" descends, from the last parameters on where there are some, so that
        a refit after a small change takes few iterations.
    polynomial
        Columns whose squares and products with one another are features too; each product is of one table's columns.
    tolerance
        Descent stops once the gradient is this much smaller than it is with all coefficients at 0.
    max_iterations
        Descent stops, with a `NotConvergedWarning`, after so many iterations.
    drop
        Which level of a categorical feature is the reference, from which the coefficients of the other levels differ:
        "first" (of the levels in ascending order, as in scikit-learn), None (no level: every level has a coefficient,
        which only a penalty tells apart), or a value per feature. A value that no row has is replaced by the first.
    unknown
        What `predict` does with a level that no training row has: "null" gives no prediction, "reference" takes it
        for the reference level.
    """

    shown: ClassVar[tuple[str, ...]] = (*Linear.shown, "rank_")

    rank_: int

    def __init__(
        self,
        label: str,
        features: Sequence[str] | None = None,
        alpha: float = 0.0,
        solver: str = "cholesky",
        *,
        polynomial: Sequence[str] = (),
        tolerance: float = 1e-9,
        max_iterations: int = 10_000,
        drop: str | Mapping[str, Any] | None = "first",
        unknown: str = "null",
    ) -> None:
        self.take_terms(label, features, polynomial, drop, unknown)
        if solver not in SOLVERS:
            raise SchemaError(f"there is no solver {solver!r}", way_out=instead([solver], SOLVERS))
        if not 0 <= alpha < np.inf:
            raise SchemaError(f"alpha={alpha} is out of range", way_out="choose 0 (no penalty) or a positive number")
        if not 0 < tolerance < 1:
            raise SchemaError(f"tolerance={tolerance} is out of range", way_out="choose one between 0 and 1")
        if max_iterations < 1:
            raise SchemaError(f"max_iterations={max_iterations} is out of range", way_out="choose at least 1")
        self.alpha, self.solver = float(alpha), solver
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.total_iterations_ = 0

    def __repr__(self) -> str:
        more = f", polynomial={list(self.polynomial)!r}" if self.polynomial else ""
        return f"LinearRegression({self.label!r}, {self.features!r}, alpha={self.alpha}, solver={self.solver!r}{more})"

    def says(self) -> str:
        penalty = f" with the penalty alpha={self.alpha:g}" if self.alpha else ""
        return f"least squares of {self.label}{penalty}"

    def fit(self, payload: Moments | MixedMoments) -> LinearRegression:
        """Learn the coefficients from moments.

        It costs O(m^3) for m features, however many rows there are; each level but the reference is a feature here.
        """
        selected = self.selected(payload)
        names = selected.features[:-1]
        system = NormalEquations.of(selected, self.alpha)
        start = self.coef_ if getattr(self, "feature_names_", None) == names else np.zeros(len(names))
        null = system.null_space()
        if self.solver == "gradient":
            scaled, iterations, converged = descend(
                system.matrix, system.right, start * system.scale, self.tolerance, self.max_iterations
            )
        else:
            scaled, iterations, converged = system.solve(null), 0, True
        coef = smallest_of(scaled / system.scale, null / system.scale[:, None])
        self.coef_, self.intercept_ = coef, float(selected.mean[-1] - coef @ selected.mean[:-1])
        self.feature_names_, self.count_ = names, round(selected.count)
        self.rank_ = len(names) - null.shape[1]
        self.iterations_ = iterations
        self.total_iterations_ += self.iterations_
        self._warn(system, converged)
        return self

    def _warn(self, system: NormalEquations, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"gradient descent did not reach the tolerance {self.tolerance:g} in {self.iterations_} iterations; "
                'fit again to go on from here, or choose solver="cholesky"',
                NotConvergedWarning,
                stacklevel=3,
            )
        if self.count_ == 1:
            warnings.warn(
                f"there is only one row: the coefficients are 0 and the intercept is its {self.label!r}",
                CollinearWarning,
                stacklevel=3,
            )
        elif self.rank_ < len(self.feature_names_):
            warnings.warn(
                f"the data cannot tell the features apart (rank {self.rank_} of {len(self.feature_names_)}): "
                f"{system.dependences(self.feature_names_)}; the smallest coefficients were chosen",
                CollinearWarning,
                stacklevel=3,
            )
