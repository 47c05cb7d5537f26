"""Sums of products as payloads: what the aggregates of a SQL view over a join need.

An aggregate over a join is a sum of products, each factor of which reads one relation. A *monomial* is a set of such
factors; a view keeps one sum per distinct monomial that its relations have a part in, so aggregates share what
they have in common, and the empty monomial is the count. Integers and decimals are exact, doubles compensated.

Monomials of a ring of the user are products of lifted factors, of which one relation may have several. Below the
relations that have some, such a monomial is a count like any other: a row that occurs k times is scaled by k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.factorized.algebra import Lifting, Scope
from headrace.factorized.lifted import factor_of, lift_product, not_lifted, taken_away
from headrace.factorized.maintenance import MaintenancePlan, Statement
from headrace.operators.delta import lift_values, too_large
from headrace.operators.kernel import Evaluated
from headrace.operators.layout import Component, ViewLayout
from headrace.plan.expression import Expression
from headrace.plan.join import Argument, FactorRef, JoinPlan, Term
from headrace.relation.kernels import Positions
from headrace.relation.keys import validity
from headrace.rings import Compensated, Integer, Payload, Product, take
from headrace.rings.embedding import Number, embed
from headrace.rings.named import NamedRing


class Token(NamedTuple):
    """A factor, or whether it is not NULL.

    Parameters
    ----------
    role : "value", "present", or "lifted" into a ring of the user.
    source, factor : the source, and the number of the factor within that source.
    times : how often a product has a lifted factor.
    """

    role: str
    source: int
    factor: int
    ring: NamedRing | None = None
    times: int = 1


Monomial = frozenset[Token]
_COUNT: Monomial = frozenset()


@dataclass(frozen=True)
class SumsAlgebra:
    """The sums of all monomials that the aggregates of one view need."""

    plan: MaintenancePlan
    join: JoinPlan
    layout: ViewLayout

    @cached_property
    def _sources(self) -> dict[str, int]:
        return {source.name: i for i, source in enumerate(self.join.sources)}

    @cached_property
    def _wanted(self) -> tuple[Monomial, ...]:
        found = [_COUNT]
        for part in self.layout.components:
            if part.argument is not None:
                argument = self.join.arguments[part.argument]
                if part.role in ("complete", "product"):
                    found.append(self._product(part))
                elif part.role == "present":
                    found.append(_present(argument))
                else:
                    assert part.role == "sum", "squares and DISTINCT values are refused when the query is read"
                    found += [_monomial(argument, term) for term in argument.terms]
        return tuple(dict.fromkeys(found))

    @cached_property
    def _monomials(self) -> tuple[tuple[Monomial, ...], ...]:
        return tuple(self._covered(scope) for scope in self._scopes)

    @cached_property
    def _scopes(self) -> tuple[frozenset[FactorRef], ...]:
        """Per view, the factors of its relations."""
        return tuple(
            frozenset((s, f) for s in map(self._sources.__getitem__, view.relations) for f in self._factors(s))
            for view in self.plan.views
        )

    def _product(self, part: Component) -> Monomial:
        """The monomial of a product in a ring of the user, or of the rows that have all of its factors."""
        assert part.argument is not None
        arguments = [self.join.arguments[i] for i in (part.argument, *part.others)]
        if part.role == "complete":
            return frozenset().union(*map(_present, arguments))
        assert isinstance(part.ring, NamedRing)
        factors = Counter(factor_of(argument) for argument in arguments)
        return frozenset(Token("lifted", s, f, part.ring, times) for (s, f), times in factors.items())

    def _factors(self, source: int) -> range:
        return range(len(self.join.sources[source].factors))

    def _covered(self, scope: Scope) -> tuple[Monomial, ...]:
        """The distinct parts that a scope has of the monomials; the count is the first."""
        if scope not in self._known:
            self._known[scope] = tuple(dict.fromkeys(_within(monomial, scope) for monomial in self._wanted))
        return self._known[scope]

    @cached_property
    def _known(self) -> dict[Scope, tuple[Monomial, ...]]:
        return {}

    def _ring(self, monomial: Monomial) -> Number | NamedRing:
        for token in monomial:
            if token.ring is not None:
                return token.ring
        kinds = [self._factor(token).type for token in monomial if token.role == "value"]
        if not kinds:
            return Integer(1)
        if any(kind.is_floating for kind in kinds):
            return Compensated()
        # A join repeats rows, so sums are larger than those of one table; products have the digits of all factors.
        return Integer(2 if len(kinds) == 1 and kinds[0].precision <= 18 else 3)

    def _factor(self, token: Token) -> Expression:
        return self.join.sources[token.source].factors[token.factor]

    def group(self, view: int) -> Product:
        return Product(tuple(self._ring(monomial) for monomial in self._monomials[view]))

    def describe(self, view: int) -> str:
        return ", ".join(self._text(monomial) for monomial in self._monomials[view])

    def degree(self, view: int) -> int:
        return len(self._monomials[view])

    def _text(self, monomial: Monomial) -> str:
        ordered = sorted(monomial, key=lambda token: (token.source, token.factor))
        values = [self._text_of(token) for token in ordered if token.role == "value"]
        lifted = [self._text_of(token) for token in ordered for _ in range(token.times) if token.role == "lifted"]
        there = [token for token in ordered if token.role == "present"]
        present = [str(self._factor(token)) for token in there]
        if len({*present}) < len(present):
            present = [f"{self.join.sources[token.source].name}.{self._factor(token)}" for token in there]
        where = f" where {' and '.join(present)} {'is' if len(present) == 1 else 'are'} there" if present else ""
        ring = self._ring(monomial)
        where += f" in {ring.name}" if isinstance(ring, NamedRing) else ""
        return (f"sum of {' * '.join([*values, *lifted])}" if values or lifted else "count") + where

    def _text_of(self, token: Token) -> str:
        """A factor as text; a lifted column has its source in front, for a product may have one of each source."""
        factor = self._factor(token)
        source = self.join.sources[token.source].name
        return f"{source}.{factor}" if token.role == "lifted" and factor.op == "column" else str(factor)

    def refused(self, leaf: int, rows: Evaluated) -> dict[int, str]:
        relation = self.plan.views[leaf].relation
        assert relation is not None
        source = self._sources[relation]
        factors = self.join.sources[source].factors
        lifted = {token for monomial in self._wanted for token in monomial if token.role == "lifted"}
        own = {token.factor for token in lifted if token.source == source}
        summed = {t.factor for monomial in self._wanted for t in monomial if (t.role, t.source) == ("value", source)}
        # A ring of the user may well have an element for infinity.
        numbers = [i for i in range(len(factors)) if i in summed or i not in own]
        found = too_large([factors[i] for i in numbers], [rows.arguments[i] for i in numbers])
        for token in lifted:
            if token.source == source:
                assert token.ring is not None
                found |= not_lifted(token.ring, factors[token.factor], rows.arguments[token.factor])
        semirings = [ring for ring in self.layout.plan.rings if not ring.subtracts]
        return found | taken_away(semirings[0], rows) if semirings else found

    def complete(self, leaf: int, rows: Evaluated) -> None:
        return None

    def lifting(self, leaf: int, rows: Evaluated) -> Lifting:
        return self.lifting_part(leaf, self._scopes[leaf], rows)

    def lifting_part(self, leaf: int, scope: Scope, rows: Evaluated) -> Lifting:
        monomials = self._covered(scope)
        return lambda at, group_of, groups: self._lift(leaf, monomials, rows.take(at), group_of, groups)

    def _lift(
        self, leaf: int, monomials: Sequence[Monomial], rows: Evaluated, group_of: Positions, groups: int
    ) -> Payload:
        relation = self.plan.views[leaf].relation
        assert relation is not None
        factors = self.join.sources[self._sources[relation]].factors
        columns: list[NDArray[np.generic]] = []
        for monomial in monomials:
            ring, times = self._ring(monomial), rows.diff
            if isinstance(ring, NamedRing):
                ordered = sorted(monomial, key=lambda token: token.factor)
                product = [(t.factor, factors[t.factor]) for t in ordered for _ in range(t.times)]
                columns += lift_product(ring, product, rows, group_of, groups)
                continue
            for token in monomial:
                if rows.arguments[token.factor].null_count:
                    times = np.where(validity(rows.arguments[token.factor]), times, 0)
            values = [token.factor for token in monomial if token.role == "value"]
            payload: Payload = (times,)
            if values:  # a term has at most one factor per source
                payload = lift_values(ring, rows.arguments[values[0]], factors[values[0]].type, times)
            columns += ring.sum_by(payload, group_of, groups)
        return tuple(columns)

    def multiply(
        self,
        statement: Statement,
        payloads: Sequence[Payload],
        index: NDArray[np.int64],
        lifted: Sequence[NDArray[np.float64]],
        group_of: Positions,
        groups: int,
    ) -> Payload:
        scopes = [self._scopes[view] for view in statement.factors]
        return self.product_sum(scopes, self._scopes[statement.target], payloads, index, (), lifted, group_of, groups)

    def scope(self, view: int) -> Scope:
        return self._scopes[view]

    def scope_of_part(self, leaf: int, keys: Collection[int], arguments: Collection[int]) -> Scope:
        source = self._sources[str(self.plan.views[leaf].relation)]
        return frozenset((source, f) for f in arguments)

    def joined_scope(self, scopes: Sequence[Scope], lifted: Sequence[str]) -> Scope:
        return frozenset().union(*map(_factors, scopes))

    def group_of(self, scope: Scope) -> Product:
        return Product(tuple(self._ring(monomial) for monomial in self._covered(scope)))

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
        own = [self._covered(scope) for scope in scopes]
        parts = [self.group_of(scope).split(payload) for scope, payload in zip(scopes, payloads, strict=True)]
        columns: list[NDArray[np.generic]] = []
        for monomial in self._covered(target):
            ring = self._ring(monomial)
            product: Payload | None = None
            times: NDArray[np.int64] | None = None
            for slot, scope in enumerate(scopes):
                inside = _within(monomial, scope)
                at = own[slot].index(inside)
                held, factor = self._ring(inside), take(parts[slot][at], index[slot])
                if isinstance(ring, NamedRing):
                    if held != ring:  # how often the rows of the other factors occur
                        times = factor[0].view(np.int64) if times is None else times * factor[0].view(np.int64)
                        continue
                else:
                    assert not isinstance(held, NamedRing)
                    factor = embed(held, ring, factor)
                product = factor if product is None else ring.multiply(product, factor)
            assert product is not None
            if isinstance(ring, NamedRing) and times is not None:
                product = ring.scale(product, times)
            columns += ring.sum_by(product, group_of, groups)
        return tuple(columns)

    def answer(self, payload: Payload) -> Payload:
        """Turn the root's sums into the components of the view's groups."""
        monomials = self._monomials[self.plan.root]
        parts = dict(zip(monomials, self.group(self.plan.root).split(payload), strict=True))
        columns: list[NDArray[np.generic]] = []
        for component in self.layout.components:
            ring = component.ring
            if component.argument is None:
                columns += parts[_COUNT]
                continue
            argument = self.join.arguments[component.argument]
            if component.role in ("complete", "product"):
                columns += parts[self._product(component)]
                continue
            if component.role == "present":
                columns += parts[_present(argument)]
                continue
            assert isinstance(ring, Integer | Compensated)
            total = ring.zeros(len(payload[0]))
            for term in argument.terms:
                monomial = _monomial(argument, term)
                number = self._ring(monomial)
                assert not isinstance(number, NamedRing)
                own = embed(number, ring, parts[monomial])
                total = ring.add(total, own if term.sign > 0 else ring.negate(own))
            columns += total
        return tuple(columns)


def _factors(scope: Scope) -> frozenset[FactorRef]:
    """The scope of sums: the factors that they have a part of."""
    assert isinstance(scope, frozenset)
    return scope


def _within(monomial: Monomial, scope: Scope) -> Monomial:
    factors = _factors(scope)
    return frozenset(token for token in monomial if (token.source, token.factor) in factors)


def _present(argument: Argument) -> Monomial:
    return frozenset(Token("present", s, f) for s, f in argument.nullable)


def _monomial(argument: Argument, term: Term) -> Monomial:
    """A term's factors, and the presence of other terms' factors: if one of those is NULL, the whole argument is."""
    others: list[FactorRef] = [ref for ref in argument.nullable if ref not in term.factors]
    return frozenset([Token("value", s, f) for s, f in term.factors] + [Token("present", s, f) for s, f in others])
