"""Covariance triples as payloads: what a model over a join needs, in one payload per key.

A view's payload covers the features of the relations below it, those of its first child first. A feature that is also
a join variable enters the payload where the variable order sums it away (Section 8.1). Categorical features are no part
of these payloads: they are keys of the views below the answer (`categories`), and sums by level in the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.factorized.algebra import Lifting, Scope
from headrace.factorized.categories import carried
from headrace.factorized.maintenance import MaintenancePlan, Statement
from headrace.operators.kernel import Evaluated
from headrace.relation.kernels import Positions
from headrace.relation.keys import validity
from headrace.relation.variables import as_numbers
from headrace.rings import Payload
from headrace.rings.covariance import Covariance, Liftable, lift_sum, permuted, product_sum

_LARGEST = 1e140  # squares, and sums of very many of them, must stay finite


@dataclass(frozen=True)
class MomentsAlgebra:
    """Count, sums and sums of products of the features below each view."""

    plan: MaintenancePlan
    columns: Mapping[str, tuple[str, ...]]  # the variables in the rows of each relation
    shifts: Mapping[str, float]  # subtracted from each feature before it is squared, to save digits
    categorical: tuple[str, ...] = ()

    @cached_property
    def _features(self) -> tuple[tuple[str, ...], ...]:
        found: dict[int, tuple[str, ...]] = {}

        def of(view: int) -> tuple[str, ...]:
            if view not in found:
                here = self.plan.views[view]
                found[view] = (*(name for child in here.payload for name in of(child)), *here.lifted)
            return found[view]

        return tuple(of(view) for view in range(len(self.plan.views)))

    def features(self, view: int) -> tuple[str, ...]:
        """The features of a view's payload, in order."""
        return self._features[view]

    @cached_property
    def _categories(self) -> tuple[tuple[str, ...], ...]:
        return carried(self.plan, self.categorical)

    def categories(self, view: int) -> tuple[str, ...]:
        """The categorical features of a view: keys of its entries, or of the answer's sums by level."""
        return self._categories[view]

    def group(self, view: int) -> Covariance:
        return Covariance(len(self.features(view)))

    def describe(self, view: int) -> str:
        degree, categories = len(self.features(view)), self.categories(view)
        said = "count" if degree == 0 else f"count, {degree} sums, {degree * (degree + 1) // 2} products"
        if not categories:
            return said
        if view != self.plan.root:
            return f"{said}, by level of {', '.join(categories)}"
        sums = f"count and {degree} sums" if degree else "count"
        pairs = len(categories) * (len(categories) - 1) // 2
        crossed = f"; count by pair of levels, of {pairs} pairs of them" if pairs else ""
        return f"{said}; {sums} by level of {', '.join(categories)}{crossed}"

    def degree(self, view: int) -> int:
        return len(self.features(view)) + len(self.categories(view))

    def refused(self, leaf: int, rows: Evaluated) -> dict[int, str]:
        found: dict[int, str] = {}
        # This includes features that are lifted further up, where nothing checks them. Only floats can be out of range.
        for name, column in zip(self._columns(leaf), rows.keys, strict=True):
            if name in self.features(self.plan.root) and pa.types.is_floating(column.type):
                wrong = ~(np.abs(as_numbers(column)) <= _LARGEST)
                for i in np.flatnonzero(wrong):
                    found.setdefault(int(i), f"NaN or infinity (or more than 1e140) in feature {name!r}")
        return found

    def complete(self, leaf: int, rows: Evaluated) -> NDArray[np.bool_] | None:
        there: NDArray[np.bool_] | None = None
        for name, column in zip(self._columns(leaf), rows.keys, strict=True):
            if column.null_count and name in (*self.features(self.plan.root), *self.categorical):
                there = validity(column) if there is None else there & validity(column)
        return there

    def lifting(self, leaf: int, rows: Evaluated) -> Lifting:
        return self.lifting_part(leaf, self.plan.views[leaf].lifted, rows)

    def lifting_part(self, leaf: int, scope: Scope, rows: Evaluated) -> Lifting:
        lifted = _features(scope)
        values = np.empty((len(lifted), len(rows.diff)))
        for i, name in enumerate(lifted):
            np.subtract(self._column(leaf, name, rows), self.shifts.get(name, 0.0), out=values[i])
        return lambda at, group_of, groups: (lift_sum(values, rows.diff, group_of, groups, rows=at),)

    def _column(self, leaf: int, name: str, rows: Evaluated) -> NDArray[np.float64]:
        return as_numbers(rows.keys[self._columns(leaf).index(name)])

    def _columns(self, leaf: int) -> tuple[str, ...]:
        relation = self.plan.views[leaf].relation
        assert relation is not None
        return self.columns[relation]

    def multiply(
        self,
        statement: Statement,
        payloads: Sequence[Payload],
        index: NDArray[np.int64],
        lifted: Sequence[NDArray[np.float64]],
        group_of: Positions,
        groups: int,
    ) -> Payload:
        scopes = [self.features(view) for view in statement.factors]
        names, target = self.plan.views[statement.target].lifted, self.features(statement.target)
        return self.product_sum(scopes, target, payloads, index, names, lifted, group_of, groups)

    def scope(self, view: int) -> Scope:
        return self.features(view)

    def scope_of_part(self, leaf: int, keys: Collection[int], arguments: Collection[int]) -> Scope:
        columns = self._columns(leaf)
        return tuple(name for name in self.plan.views[leaf].lifted if columns.index(name) in keys)

    def joined_scope(self, scopes: Sequence[Scope], lifted: Sequence[str]) -> Scope:
        return (*(name for scope in scopes for name in _features(scope)), *lifted)

    def group_of(self, scope: Scope) -> Covariance:
        return Covariance(len(_features(scope)))

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
        factors: list[NDArray[np.float64] | Liftable] = [payload[0] for payload in payloads]
        features = [_features(scope) for scope in scopes]
        if lifted:
            shift = np.array([[self.shifts.get(name, 0.0)] for name in names])
            values = np.ascontiguousarray(np.stack(lifted) - shift)
            if not any(features):  # only counts: the multiplicity of each row
                times = np.prod([payload[0][at, 0] for payload, at in zip(payloads, index, strict=True)], axis=0)
                return (lift_sum(values, times.astype(np.int64), group_of, groups),)
            factors.append(Liftable(values))
            features.append(tuple(names))
            index = np.concatenate([index, np.arange(index.shape[1])[None, :]])
        product = product_sum(factors, [len(own) for own in features], index, group_of, groups)
        have, wanted = tuple(name for own in features for name in own), _features(target)
        if have == wanted:
            return (product,)
        return (permuted(product, len(have), [have.index(name) for name in wanted]),)


def _features(scope: Scope) -> tuple[str, ...]:
    """The scope of a covariance triple: its features, in order."""
    assert isinstance(scope, tuple)
    return scope
