"""CPU times of flushes, and the unit costs that fit them: what work costs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from headrace.thrifty.cardinalities import Numbers
from headrace.thrifty.observed import Flushed, gross
from headrace.thrifty.unit_costs import UnitCosts

_LATE = 4.0  # how much the later half of a trigger's flushes counts: they meet as much state as the trigger itself
_KEPT = 0.8  # how much of earlier flushes counts after each trigger
_PRIOR = 0.05  # how much the assumed costs count, in flushes
_LEAST = 0.05  # of the assumed cost: no fit goes below
_REWEIGHTED = 3  # fits of one trigger's flushes: each weighs them by the one before
Sums = tuple[Any, ...]
"""Nested tuples of numbers."""


@dataclass(frozen=True)
class Measured:
    """CPU times of flushes, as the sums of a least-squares fit.

    Parameters
    ----------
    squares : for small and large flushes, per operator: the products of the three quantities that have a price.
    products : those of the quantities with the CPU microseconds.
    """

    squares: Sums = ()
    products: Sums = ()

    def after(self, flushes: Sequence[Flushed], assumed: UnitCosts) -> Measured:
        """What is known after the flushes of one more trigger; older ones count less.

        A flush counts by its share of error, so that a large one does not hide what small ones say. That is the share
        of what the fit says: as a share of the measured time, all estimates would come out too low.
        """
        seen = [(*_quantities(flush, assumed), _count(i, len(flushes))) for i, flush in enumerate(flushes)]
        out, units = self, None
        for _ in range(_REWEIGHTED):
            squares, products = np.zeros((*assumed.table.shape, 3)), np.zeros(assumed.table.shape)
            if self.squares:
                squares += _KEPT * np.array(self.squares)
                products += _KEPT * np.array(self.products)
            for size, rows, count in seen:
                for n, (quantities, cpu) in rows.items():
                    expected = cpu if units is None else float(units.table[size, n] @ quantities)
                    weight = count / max(1.0, expected) ** 2
                    squares[size, n] += weight * np.outer(quantities, quantities)
                    products[size, n] += weight * cpu * quantities
            out = Measured(_nested(squares), _nested(products))
            units = out.units(assumed)
        return out

    def units(self, assumed: UnitCosts) -> UnitCosts:
        """The fitted costs, drawn towards the assumed ones where flushes say little.

        If no large flush was seen, large flushes are assumed to be as much dearer than small ones as before.
        """
        if not self.squares:
            return assumed
        squares, products = np.array(self.squares), np.array(self.products)
        small = _fitted(squares[0], products[0], assumed.table[0])
        large = _fitted(squares[1], products[1], small * assumed.table[1] / assumed.table[0])
        return UnitCosts(np.array([small, large]), assumed.limit)


def _count(number: int, flushes: int) -> float:
    return _LATE if 2 * number >= flushes else 1.0


def _quantities(flush: Flushed, costs: UnitCosts) -> tuple[int, dict[int, tuple[Numbers, float]]]:
    """Of a flush whether it was large, and per operator (-1 is the flush) what has a price, with the microseconds."""
    rest, rows, out = 1e6 * flush.cpu, 0.0, {}
    for n, flow in flush.operators.items():
        taken, cpu = flow.rows + flow.summed, 1e6 * flow.cpu
        out[n] = np.array([1.0, taken, gross(flow.given)]), cpu
        rest, rows = rest - cpu, rows + taken
    out[-1] = np.array([1.0, rows, len(flush.operators)]), max(0.0, rest)
    return int(rows > costs.limit), out


def _fitted(squares: Numbers, products: Numbers, assumed: Numbers) -> Numbers:
    """The costs of all operators, none below its bound: of all choices of costs that are at their bounds, the best."""
    pull = _PRIOR / np.square(assumed)
    squares, products = squares + pull[:, :, None] * np.eye(3), products + pull * assumed
    least = _LEAST * assumed
    best, error = least, np.full(len(assumed), np.inf)
    for bound in product((False, True), repeat=3):
        at = np.array(bound)
        left, right = np.where(at[:, None], np.eye(3), squares), np.where(at, least, products)
        costs = np.maximum(least, np.linalg.solve(left, right[:, :, None])[:, :, 0])
        off = np.einsum("ni,nij,nj->n", costs, squares, costs) - 2 * np.einsum("ni,ni->n", products, costs)
        best, error = np.where((off < error)[:, None], costs, best), np.minimum(off, error)
    return best


def _nested(numbers: Numbers) -> Sums:
    return tuple(_nested(one) if one.ndim > 1 else tuple(one.tolist()) for one in numbers)
