"""The normal equations of least squares, in units in which they lose the fewest digits.

Normal equations have a bad name because they square the condition number of the data. What they lose is mostly due
to means and units, so both are removed first: the matrix that is solved is one of correlations. A linear dependence
between features that remains is detected and reported, not divided by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.errors import ArithmeticOverflowError
from headrace.learn.moments import Doubles, Moments, listed

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class NormalEquations:
    """The normal equations in units in which every feature has variance 1: matrix * (coef * scale) = right."""

    matrix: Doubles
    right: Doubles
    scale: Doubles
    unsure: float  # eigenvalues up to this may be nothing but rounding
    large_means: bool

    @classmethod
    def of(cls, moments: Moments, alpha: float) -> NormalEquations:
        """The equations of moments whose last feature is the label, with a ridge penalty."""
        check_finite(moments)
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
            if np.min(np.diagonal(np.linalg.cholesky(self.matrix)) ** 2, initial=1.0) > self.unsure:
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


def smallest_of(coef: Doubles, null: Doubles) -> Doubles:
    """Remove the part of coefficients that changes no prediction, which leaves the smallest ones."""
    if null.shape[1] == 0:
        return coef
    basis = np.linalg.qr(null)[0]
    smallest: Doubles = coef - basis @ (basis.T @ coef)
    return smallest


def check_finite(moments: Moments) -> None:
    """Refuse moments that have overflowed."""
    fine = np.isfinite(moments.shifted_cofactor) & np.isfinite(moments.shifted_sums) & np.isfinite(moments.shift)
    if not (fine.all() and np.isfinite(moments.count)):
        bad = [name for name, own in zip(moments.features, np.diagonal(fine), strict=True) if not own]
        raise ArithmeticOverflowError(
            f"the moments of {listed(bad or moments.features)} are not finite",
            way_out="leave the feature out, or divide it by its largest value: its squares do not fit a double",
        )
