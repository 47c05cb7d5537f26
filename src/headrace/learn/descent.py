"""Batch gradient descent on a quadratic: the solver of the papers, kept because it can go on where it stopped.

A step costs O(m^2), so after a small change of the data a few steps from the last parameters are enough. Step sizes
follow Barzilai and Borwein, as fixed ones would take thousands of iterations where features are correlated.
"""

from __future__ import annotations

import numpy as np

from headrace.learn.moments import Doubles

# Where the short step is below half the long one, the shortest of the last five is taken: ABBmin of Frassoldati,
# Zanni and Zanghirati (2008), which needed the fewest iterations of the rules tried on correlation matrices.
_RATIO, _MEMORY = 0.5, 5


def descend(
    matrix: Doubles, right: Doubles, start: Doubles, tolerance: float, max_iterations: int
) -> tuple[Doubles, int, bool]:
    """Minimise x^T A x / 2 - b^T x from `start`; return the best x, the iterations, and whether it converged.

    >>> x, iterations, converged = descend(np.diag([1.0, 2.0]), np.array([1.0, 1.0]), np.zeros(2), 1e-9, 100)
    >>> np.round(x, 6), iterations < 50, converged
    (array([1. , 0.5]), True, True)
    """
    enough = tolerance * float(np.linalg.norm(right))
    if enough == 0:
        return np.zeros_like(start), 0, True  # no feature has anything to do with the label
    x = start.copy()
    best, least = x, np.inf
    step = 0.0
    shorts: list[float] = []
    for iteration in range(max_iterations + 1):
        gradient = matrix @ x - right
        norm = float(np.linalg.norm(gradient))
        if norm < least:
            best, least = x, norm
        along = matrix @ gradient
        curved = float(gradient @ along)
        # Without curvature, what is left of the gradient lies where the data say nothing.
        if norm <= enough or curved <= 0 or iteration == max_iterations:
            break
        # For a quadratic, both Barzilai-Borwein steps are ratios that the gradient before determines alone.
        long, short = norm**2 / curved, curved / float(along @ along)
        x = x - (step or long) * gradient
        shorts = [*shorts[1 - _MEMORY :], short]
        step = min(shorts) if short / long < _RATIO else long
    return best, iteration, least <= enough
