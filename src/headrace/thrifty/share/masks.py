"""Masks: which of the queries that share a subplan a row belongs to, as the bits of integer columns.

A filter that the queries do not have in common marks rows instead of dropping them; a join takes the bits that both of
its rows have (Tang, "Thrifty Query Processing", 4.1.3). A mask is a field of the row like any other, so inserting and
deleting rows with masks is adding and subtracting, and no operator has to know of masks. One word has room for 62
queries; more queries take more words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from headrace.plan.expression import Expression
from headrace.relation.types import SqlType

BITS = 62  # of a BIGINT, which has a sign
_WORD, _TRUTH = SqlType("bigint"), SqlType("boolean")

Mask = tuple[Expression, ...]


def mask_of(conditions: Mapping[int, Expression | None]) -> Mask:
    """The mask of a row by the condition of each query; None is the condition of a query that wants all rows."""
    words = []
    for start in range(0, max(conditions) + 1, BITS):
        own = {query - start: one for query, one in conditions.items() if start <= query < start + BITS}
        always = sum(1 << i for i, condition in own.items() if condition is None)
        bits = [_if(condition, 1 << i) for i, condition in own.items() if condition is not None]
        words.append(reduce(_or, bits, _word(always)) if always or not bits else reduce(_or, bits))
    return tuple(words)


def both(one: Mask, other: Mask) -> Mask:
    """The queries that want both of two rows."""
    # Queries beyond the end of the shorter mask do not want its row.
    return tuple(_binary("BitwiseAnd", "&", a, b, _WORD) for a, b in zip(one, other, strict=False))


def has(mask: Mask, query: int) -> Expression:
    """Whether a row belongs to a query."""
    word = mask[query // BITS]
    return _not_zero(_binary("BitwiseAnd", "&", word, _word(1 << (query % BITS)), _WORD))


def bit_of(condition: Expression) -> int | None:
    """The bit that `has` looks for, as a number; None if the condition is another one."""
    inner = condition.args[0].args[0] if condition.op == "Not" and condition.args[0].op == "EqualTo" else condition
    found = inner.args[1].value if inner.op == "BitwiseAnd" else None
    return found if isinstance(found, int) else None


def any_of(mask: Mask, queries: Collection[int] | None = None) -> Expression:
    """Whether a row belongs to any of some queries; to any at all, if none are named."""
    if queries is None:
        return disjunction([_not_zero(word) for word in mask])
    terms = []
    for i, word in enumerate(mask):
        bits = sum(1 << (query % BITS) for query in queries if query // BITS == i)
        if bits:
            terms.append(_not_zero(_binary("BitwiseAnd", "&", word, _word(bits), _WORD)))
    return disjunction(terms)


def disjunction(terms: Sequence[Expression]) -> Expression:
    """Whether one of several conditions is true."""
    return reduce(lambda a, b: _binary("Or", "OR", a, b, _TRUTH), terms)


def conjunction(terms: Sequence[Expression]) -> Expression | None:
    """Whether all of several conditions are true; None, which all rows pass, if there are none."""
    return reduce(lambda a, b: _binary("And", "AND", a, b, _TRUTH), terms) if terms else None


def literal_mask(queries: Collection[int], words: int) -> Mask:
    """The mask of rows that belong to some queries, with so many words."""
    bits = [sum(1 << (query % BITS) for query in queries if query // BITS == i) for i in range(words)]
    return tuple(map(_word, bits))


def is_mask(expression: Expression) -> bool:
    """Whether an expression is a word of a mask, as `mask_of` writes it."""
    if expression.op == "BitwiseOr":
        return is_mask(expression.args[1])
    return expression.op == "If" and all(value.op == "literal" and value.type == _WORD for value in expression.args[1:])


def _if(condition: Expression, bit: int) -> Expression:
    sql = f"if({condition.sql}, {bit}, 0)"
    return Expression("If", _WORD, sql, (condition, _word(bit), _word(0)), nullable=False)


def _or(one: Expression, other: Expression) -> Expression:
    return _binary("BitwiseOr", "|", one, other, _WORD)


def _not_zero(word: Expression) -> Expression:
    equal = _binary("EqualTo", "=", word, _word(0), _TRUTH)
    return Expression("Not", _TRUTH, f"(NOT {equal.sql})", (equal,), nullable=False)


def _binary(op: str, sign: str, one: Expression, other: Expression, kind: SqlType) -> Expression:
    nullable = one.nullable or other.nullable
    return Expression(op, kind, f"({one.sql} {sign} {other.sql})", (one, other), nullable=nullable)


def _word(value: int) -> Expression:
    return Expression("literal", _WORD, str(value), value=value, nullable=False)
