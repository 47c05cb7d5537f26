"""Multiplicities as payloads: how often a key occurs in the join of the relations below its view.

Multiplicities of joins are products, which grow fast: a product that 64 bits do not hold is an error, not a wrong
number. Most products are far smaller, so factors are multiplied exactly only where their largest ones allow more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ArithmeticOverflowError
from headrace.factorized.algebra import Lifting, Scope
from headrace.factorized.maintenance import Statement
from headrace.operators.kernel import Evaluated
from headrace.relation.kernels import Positions
from headrace.rings import COUNT, Integer, Payload

_MOST = float(1 << 62)


@dataclass(frozen=True)
class CountAlgebra:
    """The ring of multiplicities, the same in all views."""

    def group(self, view: int) -> Integer:
        return COUNT

    def describe(self, view: int) -> str:
        return "count"

    def degree(self, view: int) -> int:
        return 1

    def refused(self, leaf: int, rows: Evaluated) -> dict[int, str]:
        return {}

    def complete(self, leaf: int, rows: Evaluated) -> None:
        return None

    def lifting(self, leaf: int, rows: Evaluated) -> Lifting:
        return lambda at, group_of, groups: COUNT.sum_by((rows.diff[at],), group_of, groups)

    def multiply(
        self,
        statement: Statement,
        payloads: Sequence[Payload],
        index: NDArray[np.int64],
        lifted: Sequence[NDArray[np.float64]],
        group_of: Positions,
        groups: int,
    ) -> Payload:
        return self.product_sum((), (), payloads, index, (), lifted, group_of, groups)

    def scope(self, view: int) -> Scope:
        return ()

    def scope_of_part(self, leaf: int, keys: Collection[int], arguments: Collection[int]) -> Scope:
        return ()

    def joined_scope(self, scopes: Sequence[Scope], lifted: Sequence[str]) -> Scope:
        return ()

    def group_of(self, scope: Scope) -> Integer:
        return COUNT

    def lifting_part(self, leaf: int, scope: Scope, rows: Evaluated) -> Lifting:
        return self.lifting(leaf, rows)

    def product_sum(
        self,
        scopes: Sequence[Scope],
        target: Scope,
        payloads: Sequence[Payload],
        index: NDArray[np.int64],
        names: Sequence[str],
        lifted: Sequence[NDArray[np.float64]],
        group_of: Positions,
        groups: int,
    ) -> Payload:
        factors = [payload[0][at] for payload, at in zip(payloads, index, strict=True)]
        check_product(factors, index.shape[1])
        product = factors[0]
        for factor in factors[1:]:
            product = product * factor
        return COUNT.sum_by((product,), group_of, groups)


def check_product(factors: Sequence[NDArray[np.int64]], summed: int) -> None:
    """Refuse products whose sum may not fit 64 bits."""
    if not summed:
        return
    bound = float(summed)
    for factor in factors:
        bound *= max(1.0, float(np.abs(factor).max()))
    if bound < _MOST:
        return
    total = np.abs(np.prod([factor.astype(np.float64) for factor in factors], axis=0)).sum()
    if total >= _MOST:
        raise ArithmeticOverflowError(
            f"a part of the join has about {total:.1e} rows, and multiplicities are 64-bit integers",
            way_out="join fewer relations in one view, or filter the rows",
        )
