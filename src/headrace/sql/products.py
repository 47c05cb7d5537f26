"""Turn what an aggregate sums over a join into sums of products whose factors each read one source.

Sums distribute over joins, and so do products whose factors come from different tables; nothing else does. So an
argument is multiplied out until it has this form, and only where the result is the very number that Spark would have
summed: what Spark would round in every row, to fewer decimal places or to a FLOAT, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import NoReturn

from headrace.plan.join import Argument, Term
from headrace.plan.native import widens
from headrace.relation.types import INTEGER_DIGITS, SqlType
from headrace.sql.jvm import Catalyst, Jvm, conjuncts, items, kind, option
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_expression, to_type
from headrace.sql.sources import Sources

_WRAPPERS = {"KnownNotNull", "KnownNullable", "PromotePrecision", "CheckOverflow"}
_WHY = "it mixes columns of several tables in a way that is no sum of products"
_WAY_OUT = "only add, subtract and multiply across tables; anything else must read the columns of one"


Factors = dict[int | None, Jvm]
"""One factor per source; a constant has no source, and its key is None."""


@dataclass(frozen=True)
class Product:
    """A product with its sign."""

    sign: int
    factors: Factors


class Products:
    """Multiplies out the arguments of the aggregates over one join."""

    def __init__(self, catalyst: Catalyst, refusals: Refusals, sources: Sources) -> None:
        self.catalyst = catalyst
        self.refusals = refusals
        self.sources = sources

    def argument(self, node: Jvm) -> Argument:
        """What an aggregate of this expression sums, and where it is NULL."""
        type = _type(node)
        terms = []
        for product in self._split(node):
            factors = self._of_type(product.factors, type, node)
            refs = sorted(self.sources.factor(source or 0, factor) for source, factor in factors.items())
            terms.append(Term(product.sign, tuple(refs)))
        all_refs = dict.fromkeys(ref for term in terms for ref in term.factors)
        nullable = tuple((s, f) for s, f in all_refs if self.sources.sides[s].factors[f].nullable())
        return Argument(tuple(terms) if type.is_numeric else (), nullable)

    def _split(self, node: Jvm) -> list[Product]:
        read, node = self.sources.localised(node)
        if len(read) < 2:
            return [Product(1, {read[0] if read else None: node})]
        name = kind(node)
        if name in _WRAPPERS:
            return self._split(node.child())
        if name == "Cast":
            if not widens(_type(node.child()), _type(node)):
                self._refuse(node, _WHY, "cast each of its parts instead")
            return self._split(node.child())
        rule = _RULES.get(name)
        if rule is None:
            self._refuse(node)
        return rule(self, node)

    def _add(self, node: Jvm) -> list[Product]:
        self._check_arithmetic(node, max)
        return self._split(node.left()) + self._split(node.right())

    def _subtract(self, node: Jvm) -> list[Product]:
        self._check_arithmetic(node, max)
        return self._split(node.left()) + _negated(self._split(node.right()))

    def _negate(self, node: Jvm) -> list[Product]:
        return _negated(self._split(node.child()))

    def _multiply(self, node: Jvm) -> list[Product]:
        self._check_arithmetic(node, lambda a, b: a + b)
        left, right = self._split(node.left()), self._split(node.right())
        return [Product(a.sign * b.sign, self._joint(node, a.factors, b.factors)) for a in left for b in right]

    def _joint(self, node: Jvm, left: Factors, right: Factors) -> Factors:
        """The factors of a product of two products, one per source; constants are multiplied into the first."""
        joint: Factors = {source: factor for source, factor in left.items() if source is not None}
        for source, factor in right.items():
            if source is not None:
                joint[source] = self._times(node, joint[source], factor) if source in joint else factor
        for constant in (factors[None] for factors in (left, right) if None in factors):
            first = min(joint, key=lambda source: source or 0, default=None)
            joint[first] = self._times(node, joint[first], constant) if joint else constant
        return joint

    def _times(self, node: Jvm, left: Jvm, right: Jvm) -> Jvm:
        """The product of two factors of one source, by the rules of the multiplication `node`."""
        types = [_type(left), _type(right)]
        if any(type.is_floating for type in types):
            wide = [SqlType("double")] * 2
        elif any(type.is_decimal for type in types):
            wide = [type if type.is_decimal else SqlType("decimal", INTEGER_DIGITS[type.kind], 0) for type in types]
        else:
            wide = [SqlType("bigint")] * 2
        factors = [self._cast(factor, type) for factor, type in zip((left, right), wide, strict=True)]
        product = node.withNewChildren(self.catalyst.seq(factors))
        if _type(product).scale != wide[0].scale + wide[1].scale:
            self._refuse(node, "Spark would round the product of its factors from one table", _NARROWER)
        return product

    def _choose(self, node: Jvm) -> list[Product]:
        """IF(condition, value, 0 or NULL): the value times an indicator in each source that the condition reads."""
        condition, value, otherwise = _branches(node) or self._refuse(node)
        reads = otherwise is not None and bool(items(otherwise.references().toSeq()))
        otherwise_value = None if otherwise is None or reads else to_expression(otherwise, {})
        constant = otherwise_value is None or (otherwise_value.op == "literal" and otherwise_value.value in (0, None))
        if reads or not constant:
            self._refuse(node, f"{_WHY}: its ELSE is neither 0 nor NULL", "write ELSE 0, or leave the ELSE out")
        is_zero = otherwise_value is not None and otherwise_value.value is not None
        conditions = self._by_source(condition)
        chosen = []
        for product in self._split(value):
            if is_zero:
                self._check_zero(node, product, set(conditions))
            chosen.append(replace(product, factors=self._indicated(node, product.factors, conditions, is_zero)))
        return chosen

    def _by_source(self, condition: Jvm) -> dict[int, list[Jvm]]:
        """The terms of a condition by the source they read; IS NOT NULL over several sources is split into factors."""
        found: dict[int, list[Jvm]] = {}
        for term in conjuncts(condition):
            read, local = self.sources.localised(term)
            if len(read) < 2:
                found.setdefault(read[0] if read else 0, []).append(local)
            elif kind(local) == "IsNotNull":
                factors = [pair for product in self._split(local.child()) for pair in product.factors.items()]
                for source, factor in factors:
                    found.setdefault(source or 0, []).append(self.catalyst.expressions.IsNotNull(factor))
            else:
                self._refuse(term, "it compares columns of several tables", "choose by the columns of one table")
        return found

    def _indicated(self, node: Jvm, factors: Factors, conditions: dict[int, list[Jvm]], is_zero: bool) -> Factors:
        factors = dict(factors)
        for source, terms in conditions.items():
            # A factor of the same source is chosen itself: it may be NULL or NaN where the condition does not hold.
            factor = factors.pop(source, None) or factors.pop(None, None) or self._one(_type(node))
            type = factor.dataType()
            otherwise = (
                self.catalyst.expressions.Literal.default(type) if is_zero else self.catalyst.literal(None, type)
            )
            factors[source] = self.catalyst.expressions.If(self.catalyst.conjunction(terms), factor, otherwise)
        return factors

    def _check_zero(self, node: Jvm, product: Product, conditions: set[int | None]) -> None:
        """Refuse unless 0 times a factor of another source is always 0: it must not be NULL, NaN or infinite."""
        # A constant goes into the indicator itself, like a factor of its source.
        others = [f for s, f in product.factors.items() if len(conditions) > 1 or s not in (None, *conditions)]
        if any(factor.nullable() for factor in others):
            self._refuse(
                node,
                "where one table makes it 0, a NULL of the other would make it NULL",
                "write COALESCE(column, 0), or FILTER (WHERE ...) after the aggregate instead of CASE ... ELSE 0",
            )
        if any(_type(factor).is_floating and not _always_finite(factor) for factor in others):
            self._refuse(
                node,
                "where one table makes it 0, a NaN of the other would make it NaN",
                "write FILTER (WHERE ...) after the aggregate instead of CASE ... ELSE 0",
            )

    def _one(self, type: SqlType) -> Jvm:
        if type.is_decimal:
            value = self.catalyst.jvm.org.apache.spark.sql.types.Decimal.apply("1")
            return self.catalyst.literal(value, self.catalyst.type("decimal(1,0)"))
        if type.is_floating:
            return self.catalyst.literal(1.0, self.catalyst.type("double"))
        return self.catalyst.literal(1, self.catalyst.type("integer"))

    def _of_type(self, factors: Factors, type: SqlType, node: Jvm) -> Factors:
        """The factors, cast so that their product has the family of a type, and the scale of a decimal type."""
        if (type.is_floating and len(factors) > 1) or type.kind == "double":
            return {s: self._cast(f, SqlType("double")) for s, f in factors.items()}
        if not type.is_decimal:
            return factors
        types = {s: _type(f) for s, f in factors.items()}
        exact = {s: t if t.is_decimal else SqlType("decimal", INTEGER_DIGITS[t.kind], 0) for s, t in types.items()}
        missing = type.scale - sum(t.scale for t in exact.values())
        first = next(iter(exact))
        wanted = exact[first]
        exact[first] = replace(wanted, precision=wanted.precision + missing, scale=wanted.scale + missing)
        if missing < 0 or exact[first].precision > 38:
            self._refuse(node, "Spark would round the products that it is made of", _NARROWER)
        return {s: self._cast(f, exact[s]) for s, f in factors.items()}

    def _cast(self, node: Jvm, type: SqlType) -> Jvm:
        if _type(node) == type:
            return node
        name = {"bigint": "long"}.get(type.kind, str(type))
        return self.catalyst.cast(node, self.catalyst.type(name))

    def _check_arithmetic(self, node: Jvm, exact_scale: Callable[[int, int], int]) -> None:
        type, mode = _type(node), node.evalMode().toString()
        if type.kind == "float":
            self._refuse(node, "Spark would round it to a FLOAT in every row", "cast its parts to DOUBLE")
        if type.is_floating:
            return
        if mode == "TRY":
            self._refuse(node, "whether it is NULL depends on several tables", "use the plain operator")
        if not type.is_decimal and not type.is_integer:
            self._refuse(node)
        left, right = (_type(child) for child in items(node.children()))
        if type.is_decimal and type.scale != exact_scale(left.scale, right.scale):
            self._refuse(node, f"Spark would round it to {type}", _NARROWER)
        if mode != "ANSI" and (type.is_integer or type.precision == 38):
            self._refuse(
                node,
                "without ANSI mode an overflow gives Spark another number or NULL",
                "set spark.sql.ansi.enabled to true, or cast its parts to DOUBLE",
            )

    def _refuse(self, node: Jvm, why: str = _WHY, way_out: str = _WAY_OUT) -> NoReturn:
        self.refusals.refuse(self.refusals.text(node), why, way_out)


_NARROWER = "cast its parts to decimals with fewer digits, or to DOUBLE"
_RULES: dict[str, Callable[[Products, Jvm], list[Product]]] = {
    "Add": Products._add,
    "Subtract": Products._subtract,
    "UnaryMinus": Products._negate,
    "Multiply": Products._multiply,
    "If": Products._choose,
    "CaseWhen": Products._choose,
}


def _type(node: Jvm) -> SqlType:
    return to_type(node.dataType()) or SqlType(node.dataType().simpleString())


def _negated(products: list[Product]) -> list[Product]:
    return [replace(product, sign=-product.sign) for product in products]


def _branches(node: Jvm) -> tuple[Jvm, Jvm, Jvm | None] | None:
    """Condition, value and ELSE of a choice with one branch; None if it has several."""
    if kind(node) == "If":
        return node.predicate(), node.trueValue(), node.falseValue()
    if node.branches().size() != 1:
        return None
    branch = node.branches().apply(0)
    return branch._1(), branch._2(), option(node.elseValue())


def _always_finite(node: Jvm) -> bool:
    """Whether a float is never NaN or infinite: it is a finite literal, or a cast of an exact number."""
    if kind(node) == "Literal":
        return node.value() is None or isfinite(node.value())
    return kind(node) == "Cast" and not _type(node.child()).is_floating
