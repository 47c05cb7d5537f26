"""Linear regression from moments: the rows of the join are never read, so that refitting takes microseconds.

Normal equations have a bad name because they square the condition number of the data. What they lose is mostly due
to means and units, so both are removed first: the matrix that is solved is one of correlations. A linear dependence
between features that remains is detected and reported, not divided by.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import ArithmeticOverflowError, NotEnoughDataError, SchemaError
from headrace.learn import frames
from headrace.learn.descent import descend
from headrace.learn.moments import Doubles, Moments, instead, listed

SOLVERS = ("cholesky", "gradient")
_EPS = float(np.finfo(np.float64).eps)


class CollinearWarning(UserWarning):
    """Features depend on one another: of the best models, the one with the smallest coefficients is returned."""


class NotConvergedWarning(UserWarning):
    """A gradient descent that was stopped before it reached its tolerance."""


class LinearRegression:
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
    tolerance
        Descent stops once the gradient is this much smaller than it is with all coefficients at 0.
    max_iterations
        Descent stops, with a `NotConvergedWarning`, after so many iterations.
    """

    coef_: Doubles
    intercept_: float
    feature_names_: tuple[str, ...]
    count_: int
    rank_: int
    iterations_: int

    def __init__(
        self,
        label: str,
        features: Sequence[str] | None = None,
        alpha: float = 0.0,
        solver: str = "cholesky",
        *,
        tolerance: float = 1e-9,
        max_iterations: int = 10_000,
    ) -> None:
        if isinstance(features, str):
            raise SchemaError(f"features is the string {features!r}", way_out=f"pass a list: [{features!r}]")
        chosen = None if features is None else tuple(features)
        if chosen is not None:
            _check_features(label, chosen)
        if solver not in SOLVERS:
            raise SchemaError(f"there is no solver {solver!r}", way_out=instead([solver], SOLVERS))
        if not 0 <= alpha < np.inf:
            raise SchemaError(f"alpha={alpha} is out of range", way_out="choose 0 (no penalty) or a positive number")
        if not 0 < tolerance < 1:
            raise SchemaError(f"tolerance={tolerance} is out of range", way_out="choose one between 0 and 1")
        if max_iterations < 1:
            raise SchemaError(f"max_iterations={max_iterations} is out of range", way_out="choose at least 1")
        self.label, self.features, self.alpha, self.solver = label, chosen, float(alpha), solver
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.total_iterations_ = 0

    def __repr__(self) -> str:
        return f"LinearRegression({self.label!r}, {self.features!r}, alpha={self.alpha}, solver={self.solver!r})"

    def clone(self) -> LinearRegression:
        """Return a model with the same settings that has not been fitted."""
        return LinearRegression(
            self.label,
            self.features,
            self.alpha,
            self.solver,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )

    def fit(self, moments: Moments) -> LinearRegression:
        """Learn the coefficients from moments; costs O(m^3) for m features, however many rows there are."""
        if self.label not in moments.features:
            raise SchemaError(
                f"there is no feature {self.label!r} to use as the label",
                way_out=instead([self.label], moments.features),
            )
        names = self.features
        if names is None:
            names = tuple(name for name in moments.features if name != self.label)
            _check_features(self.label, names)
        selected = moments.select((*names, self.label))
        system = _System.of(selected, self.alpha)
        start = self.coef_ if getattr(self, "feature_names_", None) == names else np.zeros(len(names))
        null = system.null_space()
        if self.solver == "gradient":
            scaled, iterations, converged = descend(
                system.matrix, system.right, start * system.scale, self.tolerance, self.max_iterations
            )
        else:
            scaled, iterations, converged = system.solve(null), 0, True
        coef = _smallest(scaled / system.scale, null / system.scale[:, None])
        self.coef_, self.intercept_ = coef, float(selected.mean[-1] - coef @ selected.mean[:-1])
        self.feature_names_, self.count_ = names, round(selected.count)
        self.rank_ = len(names) - null.shape[1]
        self.iterations_ = iterations
        self.total_iterations_ += self.iterations_
        self._warn(system, converged)
        return self

    def _warn(self, system: _System, converged: bool) -> None:
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

    def predict(self, frame: Any) -> Any:
        """Predict the label for rows of a pandas, Arrow or Spark table; other columns are ignored.

        pandas gives a Series named "prediction", Arrow an array, Spark the DataFrame with a column "prediction" (or
        with that column replaced). Where a feature is missing in a row, so is the prediction.
        """
        self._need_fit()
        return frames.predict(frame, self.feature_names_, self.coef_, self.intercept_)

    def score(self, data: Any) -> float:
        """Return R^2, the share of the label's variance that is predicted, on moments or on a table.

        Rows of a table that lack the label or a feature do not count. Where the label does not vary, the score is
        1 if it is always predicted exactly and 0 otherwise, as in scikit-learn.
        """
        self._need_fit()
        if not isinstance(data, Moments):
            residual, total = frames.squares(data, self.label, self.feature_names_, self.coef_, self.intercept_)
        else:
            moments = data.select((*self.feature_names_, self.label))
            _check_finite(moments)
            centred, signed = moments.centred(), np.append(-self.coef_, 1.0)
            offset = float(signed @ moments.mean) - self.intercept_
            residual = max(0.0, float(signed @ centred @ signed)) + moments.count * offset**2
            total = float(centred[-1, -1])
        if total == 0:
            return 1.0 if residual == 0 else 0.0
        return 1.0 - residual / total

    def _need_fit(self) -> None:
        if not hasattr(self, "coef_"):
            raise NotEnoughDataError("this model has not been fitted", way_out="call fit(moments) first")


@dataclass(frozen=True)
class _System:
    """The normal equations in units in which every feature has variance 1: matrix * (coef * scale) = right."""

    matrix: Doubles
    right: Doubles
    scale: Doubles
    unsure: float  # eigenvalues up to this may be nothing but rounding
    large_means: bool

    @classmethod
    def of(cls, moments: Moments, alpha: float) -> _System:
        _check_finite(moments)
        centred = moments.centred()
        square, spread = np.diagonal(moments.shifted_cofactor)[:-1], np.diagonal(centred)[:-1].copy()
        # Sums of n values that differ are off by about 0.2 sqrt(n) units in the last place. Equal values round alike,
        # so that their errors add up; how fast depends on the batches that they came in, and 4 sqrt(n) covers a load
        # at once. (With a shift they are sums of zeros.)
        rounding = _EPS * np.sqrt(moments.count)
        constant = spread <= (64 * _EPS + 4 * rounding) * square
        large_means = bool(((square > 1e6 * spread) & (square > 0)).any())
        centred[:-1][constant] = 0.0
        centred[:, :-1][:, constant] = 0.0
        spread[constant] = 0.0
        penalised = spread + alpha
        scale = np.sqrt(np.where(penalised > 0, penalised, 1.0))
        matrix = (centred[:-1, :-1] + alpha * np.eye(len(scale))) / np.outer(scale, scale)
        np.fill_diagonal(matrix, (penalised > 0).astype(np.float64))
        lost = np.max(square / scale**2, initial=1.0, where=~constant)
        unsure = min(0.5, (16 * _EPS + rounding / 2) * np.sqrt(len(scale)) * lost)
        return cls(matrix, centred[:-1, -1] / scale, scale, unsure, large_means)

    def null_space(self) -> Doubles:
        """Return the directions that the data do not determine, as columns."""
        at_most = self.unsure
        try:
            # The square of a pivot is what the features before leave unexplained of one.
            if np.min(np.diagonal(np.linalg.cholesky(self.matrix)) ** 2) > self.unsure:
                return np.empty((len(self.matrix), 0))
        except np.linalg.LinAlgError:
            at_most = max(at_most, float(np.linalg.eigvalsh(self.matrix)[0]))  # one direction is missing at least
        values, vectors = np.linalg.eigh(self.matrix)
        empty: Doubles = vectors[:, values <= at_most]
        return empty

    def solve(self, null: Doubles) -> Doubles:
        """Solve in the directions that the data determine; by Cholesky if these are all."""
        missing = null.shape[1]
        if not missing:
            lower = np.linalg.cholesky(self.matrix)
            full: Doubles = np.linalg.solve(lower.T, np.linalg.solve(lower, self.right))
            return full
        values, vectors = np.linalg.eigh(self.matrix)  # from the smallest eigenvalue to the largest
        some: Doubles = vectors[:, missing:] @ ((vectors[:, missing:].T @ self.right) / values[missing:])
        return some

    def dependences(self, names: tuple[str, ...]) -> str:
        """Describe the features that are constant or combinations of others, found by a Cholesky with pivots."""
        left, chosen = self.matrix.copy(), []
        while left.size and np.max(np.diagonal(left)) > self.unsure:
            pivot = int(np.argmax(np.diagonal(left)))
            chosen.append(pivot)
            left = left - np.outer(left[pivot], left[pivot]) / left[pivot, pivot]
            left[pivot], left[:, pivot] = 0.0, 0.0
        said = []
        for j in sorted(set(range(len(names))) - set(chosen)):
            if self.matrix[j, j] == 0:
                said.append(f"{names[j]!r} does not vary by more than rounding")
                continue
            weights = np.linalg.solve(self.matrix[np.ix_(chosen, chosen)], self.matrix[chosen, j])
            parts = [names[c] for c, weight in sorted(zip(chosen, weights, strict=True)) if abs(weight) > 1e-4]
            said.append(f"{names[j]!r} is a combination of {listed(parts)}")
        if self.large_means:
            said.append("means that are very large against the spread have cost digits, which shifted features keep")
        return ", ".join(said)


def _smallest(coef: Doubles, null: Doubles) -> Doubles:
    """Remove the part of coefficients that changes no prediction, which leaves the smallest ones."""
    if null.shape[1] == 0:
        return coef
    basis = np.linalg.qr(null)[0]
    smallest: Doubles = coef - basis @ (basis.T @ coef)
    return smallest


def _check_features(label: str, features: tuple[str, ...]) -> None:
    if not features:
        raise SchemaError(f"there is no feature to predict {label!r} from", way_out="choose at least one")
    if label in features:
        raise SchemaError(f"the label {label!r} is among the features", way_out="leave it out of them")
    twice = sorted({name for name in features if features.count(name) > 1})
    if twice:
        raise SchemaError(f"{listed(twice)} is among the features more than once", way_out="name each feature once")


def _check_finite(moments: Moments) -> None:
    fine = np.isfinite(moments.shifted_cofactor) & np.isfinite(moments.shifted_sums) & np.isfinite(moments.shift)
    if not (fine.all() and np.isfinite(moments.count)):
        bad = [name for name, own in zip(moments.features, np.diagonal(fine), strict=True) if not own]
        raise ArithmeticOverflowError(
            f"the moments of {listed(bad or moments.features)} are not finite",
            way_out="leave the feature out, or divide it by its largest value: its squares do not fit a double",
        )
