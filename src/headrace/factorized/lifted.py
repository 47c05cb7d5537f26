"""Products of lifted factors: what a relation brings to a sum in a ring of the user, and which rows it cannot bring.

A factor is lifted where its relation is, before anything is joined. A row that the ring has no element for, or that is
to be taken away from a sum in a semiring, is a bad row, found before the step has changed anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.kernel import Evaluated
from headrace.plan.expression import Expression
from headrace.plan.join import Argument, FactorRef
from headrace.relation.kernels import Positions
from headrace.relation.keys import validity
from headrace.relation.types import SqlType
from headrace.rings import Payload
from headrace.rings.named import NamedRing


def factor_of(argument: Argument) -> FactorRef:
    """The one factor of an argument that reads one source."""
    [term] = argument.terms
    [factor] = term.factors
    return factor


def lift_product(
    ring: NamedRing,
    factors: Sequence[tuple[int, Expression]],
    rows: Evaluated,
    group_of: Positions,
    groups: int,
) -> Payload:
    """The sum, per group, of the products of lifted factors; a row where one of them is NULL does not count.

    Parameters
    ----------
    factors : the numbers and the expressions of the factors, each as often as the product has it.
    """
    there = np.logical_and.reduce([validity(rows.arguments[number]) for number, _ in factors])
    at = np.flatnonzero(there)
    product: Payload | None = None
    for number, factor in factors:
        lifted = ring.lift(_numbers(rows.arguments[number].take(pa.array(at)), factor.type))
        product = lifted if product is None else ring.multiply(product, lifted)
    assert product is not None
    return ring.sum_by(ring.scale(product, rows.diff[at]), group_of[at], groups)


def not_lifted(ring: NamedRing, factor: Expression, column: pa.Array) -> dict[int, str]:
    """Find rows with a value that a ring has no element for."""
    at = np.flatnonzero(validity(column))
    values = _numbers(column.take(pa.array(at)), factor.type)
    wrong = np.flatnonzero(ring.not_taken(values))
    return {int(at[i]): f"{values[i]} in {factor}, which the ring {ring.name!r} does not take" for i in wrong}


def taken_away(semiring: NamedRing, rows: Evaluated) -> dict[int, str]:
    """Find deletions, none of which a semiring can follow.

    Whether an equal row is inserted beside one makes no difference: the rows of a step are spread over tasks, so no
    task could tell, and whether a step is taken must not depend on how changes were put into batches.
    """
    why = (
        f"sums in the semiring {semiring.name!r}, which cannot take a row away again; use MIN or MAX, or a ring that "
        "has `negate`, or let Spark recompute the view at every step, with refresh='full'"
    )
    return dict.fromkeys(np.flatnonzero(rows.diff < 0).tolist(), why)


def _numbers(column: pa.Array, kind: SqlType) -> NDArray[Any]:
    """A column without NULLs as doubles or as 64-bit integers."""
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64 if kind.is_floating else np.int64, copy=False)
