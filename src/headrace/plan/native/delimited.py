"""Parts of texts between delimiters: SUBSTRING_INDEX, and an element of SPLIT."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.plan.native.like import quoted
from headrace.plan.native.regex import plain_text
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule, literal_int, literal_text
from headrace.plan.native.vectors import over_array

_MOST = 100  # RE2 refuses large repetitions


def _overlaps(text: str) -> bool:
    """Whether a text can begin before another occurrence of it ends; Spark's SUBSTRING_INDEX then counts both."""
    return any(text.endswith(text[:n]) for n in range(1, len(text)))


def _cuts(node: Expression) -> bool:
    text, delimiter, count = node.args[0], literal_text(node.args[1]), literal_int(node.args[2])
    is_vetted = bool(delimiter) and not _overlaps(delimiter or "") and count is not None and 0 < abs(count) <= _MOST
    return text.type.kind == "string" and is_vetted


def _cut(node: Expression, rows: Rows) -> Datum:
    delimiter, count = quoted(literal_text(node.args[1]) or ""), literal_int(node.args[2]) or 0
    kept = f"((?:.*?{delimiter}){{{abs(count) - 1}}}.*?)"
    pattern = rf"\A{kept}{delimiter}.*\z" if count > 0 else rf"\A.*{delimiter}{kept}\z"
    return pc.replace_substring_regex(rows.value(node.args[0]), f"(?s){pattern}", r"\1")


def _is_element(node: Expression) -> bool:
    split, index = node.args[0], literal_int(node.args[1])
    if split.op != "StringSplit" or index is None or not 0 <= index <= _MOST:
        return False
    text, delimiter, limit = split.args
    return text.type.kind == "string" and plain_text(literal_text(delimiter)) is not None and literal_int(limit) == -1


def _element(node: Expression, rows: Rows) -> Datum:
    text, delimiter, _ = node.args[0].args
    found, index = quoted(plain_text(literal_text(delimiter)) or ""), literal_int(node.args[1])
    pattern = rf"(?s)\A(?:.*?{found}){{{index}}}(.*?)(?:{found}.*)?\z"
    return over_array(partial(_of_each, pattern=pattern, strict=bool(node.value)), rows.value(text))


def _of_each(texts: pa.Array, pattern: str, strict: bool) -> pa.Array:
    there = pc.match_substring_regex(texts, pattern)
    elements = pc.replace_substring_regex(texts, pattern, r"\1")
    if pc.all(there).as_py() is not False:
        return elements
    if strict:
        raise NeedsCatalyst("a text has too few parts")
    return pc.if_else(there, elements, pa.scalar(None, texts.type))


RULES = {
    "SubstringIndex": Rule(_cuts, _cut),
    "GetArrayItem": Rule(_is_element, _element, operands=lambda node: node.args[0].args[:1]),
}
