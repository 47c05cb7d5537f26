"""What the payloads of a plan's views are, and how they multiply.

The triggers of a plan only say which keys meet; an algebra says how their payloads multiply: covariance triples for
models, sums of products for SQL. Lifting and summing is one operation, and so is multiplying and summing, so no payload
is ever made for a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.factorized.maintenance import Statement
from headrace.operators.kernel import Evaluated
from headrace.relation.kernels import Positions
from headrace.rings import Group, Payload

Lifting = Callable[[Positions, Positions, int], Payload]
"""(positions of rows, the group of each, number of groups) -> the sum of each group."""

Scope = Hashable
"""What a payload covers of the answer's: the features, or the factors of sums, of some relations or columns."""


class Algebra(Protocol):
    """Payloads of all views of one plan."""

    def group(self, view: int) -> Group:
        """The group in which a view's payloads are added."""
        ...

    def describe(self, view: int) -> str:
        """Say in words what a view's payload holds."""
        ...

    def degree(self, view: int) -> int:
        """How much a view's payload holds: the number of features, or of sums."""
        ...

    def refused(self, leaf: int, rows: Evaluated) -> dict[int, str]:
        """Rows that cannot be lifted, with the reason."""
        ...

    def complete(self, leaf: int, rows: Evaluated) -> NDArray[np.bool_] | None:
        """Which rows take part, because no value that they need is NULL; None if all do."""
        ...

    def lifting(self, leaf: int, rows: Evaluated) -> Lifting:
        """Prepare rows to be lifted; returns a function that lifts rows by position and sums them by group."""
        ...

    def multiply(
        self,
        statement: Statement,
        payloads: Sequence[Payload],
        index: NDArray[np.int64],
        lifted: Sequence[NDArray[np.float64]],
        group_of: Positions,
        groups: int,
    ) -> Payload:
        """Multiply, for each row, the elements that `index` picks from the factors, and sum the products by group."""
        ...

    # A factor of a product covers less than the view whose change it is part of. So what is below is as above, but for
    # any scope instead of that of a view.

    def scope(self, view: int) -> Scope:
        """What the payload of a view covers."""
        ...

    def scope_of_part(self, leaf: int, keys: Collection[int], arguments: Collection[int]) -> Scope:
        """What a part of a row covers that has some of the keys and arguments of its source, by number."""
        ...

    def joined_scope(self, scopes: Sequence[Scope], lifted: Sequence[str]) -> Scope:
        """What a product of payloads covers in which some variables are lifted."""
        ...

    def group_of(self, scope: Scope) -> Group:
        """The group of the payloads of a scope."""
        ...

    def lifting_part(self, leaf: int, scope: Scope, rows: Evaluated) -> Lifting:
        """Prepare parts of rows to be lifted, as `lifting` does for rows."""
        ...

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
        """Multiply and sum elements of some scopes, as `multiply` does for views; `names` are those of the lifted."""
        ...
