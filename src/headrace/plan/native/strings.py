"""Functions of strings. Positions and lengths count code points, as they do in Spark."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.plan.native.like import like_regex, quoted
from headrace.plan.native.rule import Datum, Rows, Rule, literal_int, literal_text, of_kind, over_args
from headrace.plan.native.vectors import over_array
from headrace.relation.keys import string_buffers

# Search.


def _with_text(function: Callable[[Datum, str], Datum]) -> Rule:
    """A function of a string and a literal."""

    def accepts(node: Expression) -> bool:
        return of_kind("string")(node) and literal_text(node.args[1]) is not None

    return Rule(accepts, lambda node, rows: function(rows.value(node.args[0]), literal_text(node.args[1]) or ""))


def _regex(node: Expression) -> str | None:
    return like_regex(literal_text(node.args[1]), node.value)


def _like(node: Expression, rows: Rows) -> Datum:
    return pc.match_substring_regex(rows.value(node.args[0]), _regex(node))


def _position(texts: Datum, wanted: str) -> Datum:
    return over_array(lambda array: _positions(array, wanted), texts)


def _positions(texts: pa.Array, wanted: str) -> pa.Array:
    """Where a text first occurs, in code points from 1; 0 where it does not."""
    found = pc.find_substring(texts, wanted)  # in bytes from 0, and -1
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return pc.cast(pc.add(found, 1), pa.int32())
    edges, data = string_buffers(texts)
    begins = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])  # code points that begin before each byte
    at = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
    position = np.where(at < 0, 0, begins[edges[:-1] + np.maximum(at, 0)] - begins[edges[:-1]] + 1)
    return pc.if_else(pc.is_valid(texts), pa.array(position.astype(np.int32)), pa.scalar(None, pa.int32()))


def _locates_from_the_start(node: Expression) -> bool:
    wanted, texts, start = node.args
    are_texts = wanted.type.kind == texts.type.kind == "string"
    return are_texts and literal_text(wanted) is not None and literal_int(start) == 1


def _locate(node: Expression, rows: Rows) -> Datum:
    return _position(rows.value(node.args[1]), literal_text(node.args[0]) or "")


# Parts.


def _literal_bounds(node: Expression) -> bool:
    _, position, length = node.args
    is_text = node.args[0].type.kind == "string"
    return is_text and literal_int(position) is not None and literal_int(length) is not None


def _substring(node: Expression, rows: Rows) -> Datum:
    position, length = literal_int(node.args[1]) or 0, max(literal_int(node.args[2]) or 0, 0)
    start = position - 1 if position > 0 else position  # a negative one counts from the end
    stop = start + length if start >= 0 or start + length < 0 else None
    return pc.utf8_slice_codeunits(rows.value(node.args[0]), start, stop)


def _trim(function: Callable[..., Datum]) -> Rule:
    def accepts(node: Expression) -> bool:
        return of_kind("string")(node) and all(literal_text(arg) is not None for arg in node.args[1:])

    def compute(node: Expression, rows: Rows) -> Datum:
        # Without an argument only spaces are trimmed: neither tabs nor line breaks.
        characters = literal_text(node.args[1]) if len(node.args) > 1 else " "
        return function(rows.value(node.args[0]), characters=characters)

    return Rule(accepts, compute)


def _replaces_text(node: Expression) -> bool:
    _, wanted, replacement = node.args
    return of_kind("string")(node) and bool(literal_text(wanted)) and literal_text(replacement) is not None


def _replace(node: Expression, rows: Rows) -> Datum:
    _, wanted, replacement = (literal_text(arg) for arg in node.args)
    return pc.replace_substring(rows.value(node.args[0]), wanted, replacement)


def _concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()), null_handling="emit_null")


def _concat_with(separator: Datum, first: Datum, *others: Datum) -> Datum:
    # Arrow leaves a row out if all of its texts are NULL, so that one of them must not be.
    is_empty = pc.is_null(pc.coalesce(first, *others))
    first = pc.if_else(is_empty, pa.scalar("", pa.large_string()), first)
    return pc.binary_join_element_wise(first, *others, separator, null_handling="skip")


def _as_int(function: Callable[[Datum], Datum]) -> Callable[[Datum], Datum]:
    return lambda texts: pc.cast(function(texts), pa.int32())


RULES = {
    "Like": Rule(lambda node: node.args[0].type.kind == "string" and _regex(node) is not None, _like),
    "StartsWith": _with_text(pc.starts_with),
    "EndsWith": _with_text(pc.ends_with),
    "Contains": _with_text(lambda texts, wanted: pc.match_substring_regex(texts, quoted(wanted))),
    "StringInstr": _with_text(_position),
    "StringLocate": Rule(_locates_from_the_start, _locate),
    "Length": Rule(of_kind("string"), over_args(_as_int(pc.utf8_length))),
    "OctetLength": Rule(of_kind("string"), over_args(_as_int(pc.binary_length))),
    "Substring": Rule(_literal_bounds, _substring),
    "StringTrim": _trim(pc.utf8_trim),
    "StringTrimLeft": _trim(pc.utf8_ltrim),
    "StringTrimRight": _trim(pc.utf8_rtrim),
    "StringReplace": Rule(_replaces_text, _replace),
    "ConcatWs": Rule(
        lambda node: len(node.args) > 1 and of_kind("string")(node) and literal_text(node.args[0]) is not None,
        over_args(_concat_with),
    ),
    "Concat": Rule(lambda node: len(node.args) > 0 and of_kind("string")(node), over_args(_concat)),
}
