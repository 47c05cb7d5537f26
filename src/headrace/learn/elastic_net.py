"""Elastic net and lasso from moments: coordinate descent on the centred Gram matrix.

A penalty on the absolute coefficients sets those to zero that are not worth it, so it selects features. The descent
needs the products of centred features only, which moments have: a sweep over m features costs O(m^2).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numba as nb
import numpy as np

from headrace.errors import SchemaError
from headrace.learn.linear import Linear, NotConvergedWarning
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Doubles, Moments
from headrace.learn.normal_equations import NormalEquations

_jit: Any = nb.njit(cache=True, nogil=True)


class ElasticNet(Linear):
    """Least squares with a penalty on the coefficients' absolute values and squares, over the moments of a view.

    What is minimised is that of scikit-learn's `ElasticNet`, over the n rows of the join:
    |y - Xw|^2 / 2n + alpha * l1_ratio * |w|_1 + alpha * (1 - l1_ratio) * |w|^2 / 2. `l1_ratio=1` is the lasso.

    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> table = np.stack([x, x % 2, 2 * x + 1])
    >>> moments = Moments(("x", "odd", "y"), 4, table.sum(axis=1), table @ table.T)
    >>> model = ElasticNet("y", alpha=0.5, l1_ratio=1.0).fit(moments)
    >>> model.coef_.round(6), round(model.intercept_, 6), model.selected_
    (array([1.6, 0. ]), 1.6, ('x',))

    Parameters
    ----------
    label
        The feature to predict.
    features
        The features to predict it from; all others, if left out.
    alpha
        The weight of the penalty; the intercept is not penalised.
    l1_ratio
        The share of the absolute values in the penalty, between 0 and 1.
    polynomial
        Columns whose squares and products with one another are features too; each product is of one table's columns.
    tolerance
        The descent stops once no coefficient could improve by more than this, in units of standard deviations.
    max_iterations
        The descent stops, with a `NotConvergedWarning`, after so many sweeps.
    drop
        Which level of a categorical feature is the reference, from which the coefficients of the other levels differ:
        "first" (of the levels in ascending order, as in scikit-learn), None (no level: every level has a coefficient,
        which only a penalty tells apart), or a value per feature. A value that no row has is replaced by the first.
    unknown
        What `predict` does with a level that no training row has: "null" gives no prediction, "reference" takes it
        for the reference level.
    """

    shown = (*Linear.shown, "selected_")

    def __init__(
        self,
        label: str,
        features: Sequence[str] | None = None,
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        *,
        polynomial: Sequence[str] = (),
        tolerance: float = 1e-12,
        max_iterations: int = 100_000,
        drop: str | Mapping[str, Any] | None = "first",
        unknown: str = "null",
    ) -> None:
        self.take_terms(label, features, polynomial, drop, unknown)
        if not 0 <= alpha < np.inf:
            raise SchemaError(f"alpha={alpha} is out of range", way_out="choose 0 (no penalty) or a positive number")
        if not 0 <= l1_ratio <= 1:
            raise SchemaError(f"l1_ratio={l1_ratio} is out of range", way_out="choose one from 0 (ridge) to 1 (lasso)")
        if not 0 < tolerance < 1:
            raise SchemaError(f"tolerance={tolerance} is out of range", way_out="choose one between 0 and 1")
        if max_iterations < 1:
            raise SchemaError(f"max_iterations={max_iterations} is out of range", way_out="choose at least 1")
        self.alpha, self.l1_ratio = float(alpha), float(l1_ratio)
        self.tolerance, self.max_iterations = tolerance, max_iterations

    @property
    def selected_(self) -> tuple[str, ...]:
        """The features whose coefficients are not zero."""
        self.need_fit("coef_")
        return tuple(name for name, weight in zip(self.feature_names_, self.coef_, strict=True) if weight)

    def says(self) -> str:
        return f"an elastic net of {self.label} with alpha={self.alpha:g}, l1_ratio={self.l1_ratio:g}"

    def fit(self, payload: Moments | MixedMoments) -> ElasticNet:
        """Learn the coefficients, from the last ones on where there are some; the answer does not depend on these."""
        selected = self.selected(payload)
        names, mean = selected.features[:-1], selected.mean
        system = NormalEquations.of(selected, 0.0)
        start = self.coef_ if getattr(self, "feature_names_", None) == names else np.zeros(len(names))
        penalty = selected.count * self.alpha / system.scale
        size = float(np.sqrt(selected.centred()[-1, -1]))
        absolute, square = penalty * self.l1_ratio, penalty * (1 - self.l1_ratio) / system.scale
        scaled, iterations, converged = sweep(
            system.matrix,
            system.right,
            start * system.scale,
            absolute,
            square,
            self.tolerance * size,
            self.max_iterations,
        )
        if converged:
            scaled = polished(system, scaled, absolute, square, size)
        self.coef_ = scaled / system.scale
        self.intercept_ = float(mean[-1] - self.coef_ @ mean[:-1])
        self.feature_names_, self.count_, self.iterations_ = names, round(selected.count), int(iterations)
        if not converged:
            warnings.warn(
                f"coordinate descent did not reach the tolerance {self.tolerance:g} in {self.iterations_} sweeps; "
                "fit again to go on from here, or choose a larger alpha",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self


def polished(system: NormalEquations, found: Doubles, absolute: Doubles, square: Doubles, size: float) -> Doubles:
    """Solve at once for the coefficients that a descent has left nonzero.

    Which ones these are and their signs decide the rest, so that the answer does not depend on where a descent began,
    not even in its last digits. Where the equations are too close to singular for that, the descent's answer stays.
    """
    there = np.flatnonzero(found)
    sign = np.sign(found[there])
    matrix = system.matrix[np.ix_(there, there)] + np.diag(square[there])
    try:
        solved = np.linalg.solve(matrix, system.right[there] - absolute[there] * sign)
    except np.linalg.LinAlgError:
        return found
    if (np.sign(solved) != sign).any() or np.max(np.abs(solved - found[there]), initial=0.0) > 1e-6 * size:
        return found
    out = np.zeros_like(found)
    out[there] = solved
    return out


@_jit
def sweep(
    matrix: Doubles, right: Doubles, start: Doubles, absolute: Doubles, square: Doubles, enough: float, most: int
) -> tuple[Doubles, int, bool]:
    """Minimise u^T A u / 2 - b^T u + sum of absolute |u_j| + square u_j^2 / 2, one coordinate after the other.

    Stops once every coordinate's best place is no further than `enough` from where it is. Features that do not vary
    have A_jj = 0 and stay at zero.
    """
    u = start.copy()
    for j in range(len(u)):
        if matrix[j, j] == 0.0:
            u[j] = 0.0
    gradient = right - matrix @ u  # b - A u, kept up to date
    for iteration in range(1, most + 1):
        furthest = 0.0
        for j in range(len(u)):
            own = matrix[j, j]
            if own == 0.0:
                continue
            pull = gradient[j] + own * u[j]
            best = np.sign(pull) * max(abs(pull) - absolute[j], 0.0) / (own + square[j])
            moved = best - u[j]
            if moved != 0.0:
                u[j] = best
                for k in range(len(u)):
                    gradient[k] -= moved * matrix[k, j]
                furthest = max(furthest, abs(moved))
        if furthest <= enough:
            return u, iteration, True
    return u, most, False
