"""Functions of strings against Spark: LIKE first of all, then positions, parts and case over all of Unicode."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.native import letters, strings
from headrace.plan.native.like import like_regex
from headrace.relation.types import SqlType

STRING = SqlType("string")
PATTERNS = [
    "%special%requests%", "a%b%c", "a_b", "a_b%", "_", "__", "%_", "_%_", "%a%b", "a%b%", "%a%a%a%", "%", "%%", "_%b",
    "a\\\\_b", "a\\\\%b", "%\\\\%%b", "a\\\\\\\\b", "%\U0001f600%b%", "\U0001f600_%", "%.*%x%", "%[a]%b%", "(a|b)$",
    "_%$", "x^y+z?{2}", "%é_%", "a\n_%", "a__b%", "\x00_%", "%日%語", "_\u0301",
]  # fmt: skip
SEARCHED = ["", "a", "ab", "é", "\U0001f600", "b", "語", " ", "ab ab", "."]
EXPRESSIONS = [
    *(f"{a}1 LIKE '{pattern}'" for pattern in PATTERNS for a in "es"),
    "e1 NOT LIKE '%special%requests%'",
    "e1 LIKE 'a#_b' ESCAPE '#'",
    "e1 LIKE '%##%b%' ESCAPE '#'",
    "e1 LIKE 'a__%b' ESCAPE '_'",
    "e1 ILIKE '%SPECIAL%Requests%'",
    "e1 LIKE '%a%' AND e2 LIKE '%b_b%'",
    *(f"{f}(e1, '{text}')" for f in ("contains", "startswith", "endswith", "instr") for text in SEARCHED),
    *(f"{f}(s1, '{text}')" for f in ("contains", "startswith", "endswith", "instr") for text in SEARCHED),
    *(text for wanted in SEARCHED for text in (f"locate('{wanted}', e1)", f"position('{wanted}' IN s1)")),
    *(f"substr({a}1, {at}, {n})" for a in "es" for at in (-99, -5, -3, -1, 0, 1, 2, 4, 99) for n in (-1, 0, 1, 3, 99)),
    *(f"{f}({a}1, {n})" for f in ("left", "right", "substring") for a in "es" for n in (-2, 0, 1, 3)),
    *(f"{f}({a}1)" for f in ("trim", "ltrim", "rtrim", "length", "octet_length", "upper", "lower") for a in "es"),
    *(f"trim({side} '{set}' FROM e1)" for side in ("BOTH", "LEADING", "TRAILING") for set in (" ab", "", "é語")),
    *(f"replace(e1, '{a}', '{b}')" for a in ("ab", "a", "é", " ", "\U0001f600") for b in ("", "x", "aa", "語")),
    "replace(e1, 'special')",
    "concat(s1, s2)",
    "s1 || 'x' || e2",
    "concat(s1)",
    *(f"concat_ws('{a}', {texts})" for a in ("", "-", "é") for texts in ("s1, s2", "s1, 'x', e2", "e1", "s1, s2, s1")),
    "upper(s1) = 'A'",
]  # fmt: skip


def test_functions_of_strings_give_sparks_values(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, strings.RULES | letters.RULES)
    agrees(EXPRESSIONS, ansi=False)


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("s1 LIKE s2", "Like"),
        ("contains(s1, s2)", "Contains"),
        ("instr(s1, s2)", "StringInstr"),
        ("locate('a', s1, 2)", "StringLocate"),
        ("substr(s1, i1, 1)", "Substring"),
        ("trim(BOTH s2 FROM s1)", "StringTrim"),
        ("replace(s1, '', 'x')", "StringReplace"),
        ("concat_ws(s1, s2, 'x')", "ConcatWs"),
        ("concat_ws('-', array(s1, s2), s1)", "ConcatWs"),
        ("initcap(s1)", "InitCap"),
        ("upper(s1 COLLATE UNICODE) = 'A'", "Upper"),
    ],
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)


@pytest.mark.parametrize("pattern", ["a\\", "a\\b", "\\"])
def test_patterns_that_spark_refuses_are_left_to_it(pattern: str) -> None:
    assert like_regex(pattern, "\\") is None
    assert like_regex(None, "\\") is None


@given(st.text("ab%_\\\n", max_size=8), st.lists(st.text("ab%_\\\né\U0001f600", max_size=10), min_size=1))
def test_like_is_what_a_plain_matcher_says(pattern: str, texts: list[str]) -> None:
    regex = like_regex(pattern, "\\")
    tokens = tokens_of(pattern)
    assert (regex is None) == (tokens is None)
    if tokens is not None:
        like = Expression("Like", SqlType("boolean"), "", (column("x", STRING), literal(pattern)), value="\\")
        got = native.evaluate(like, {"x": pa.array(texts, pa.large_string())}, len(texts))
        assert got.to_pylist() == [matches(tokens, text) for text in texts]


def tokens_of(pattern: str) -> list[str] | None:
    if not pattern:
        return []
    if pattern[0] != "\\":
        rest = tokens_of(pattern[1:])
        return None if rest is None else [{"%": "any", "_": "one"}.get(pattern[0], pattern[0]), *rest]
    rest = tokens_of(pattern[2:])
    return None if pattern[1:2] not in ("%", "_", "\\") or rest is None else [pattern[1], *rest]


def matches(tokens: list[str], text: str) -> bool:
    if not tokens:
        return not text
    if tokens[0] == "any":
        return any(matches(tokens[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and tokens[0] in ("one", text[0]) and matches(tokens[1:], text[1:])


def literal(text: str) -> Expression:
    return Expression("literal", STRING, "", value=text, nullable=False)


@pytest.mark.parametrize("icu", ["true", "false"])
def test_case_of_every_letter_is_sparks_or_left_to_it(spark: SparkSession, icu: str) -> None:
    """Every code point with a case, and every one of the lowest plane, as Spark converts it by ICU and by Java."""
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    points = [c for c in points if c < "\U00010000" or (unicodedata.category(c)[0] == "L" and c < "\U00020000")]
    points += [f"{c}\u0307x" for c in "iI\u0130\u0131J"] + ["straße ǅ ŉ ﬃ", "日本 \U0001f600 é"]
    session = spark.newSession()
    session.conf.set("spark.sql.icu.caseMappings.enabled", icu)
    table = session.createDataFrame(pa.table({"x": points})).coalesce(1)
    expected = table.selectExpr("x", "upper(x) AS Upper", "lower(x) AS Lower").toArrow()
    left = 0
    for op in ("Upper", "Lower"):
        expression = Expression(op, STRING, op, (column("x", STRING),))
        # In blocks, so that most of them have no letter in dispute.
        for start in range(0, len(points), 64):
            block = expected.slice(start, 64).combine_chunks()
            try:
                got = native.evaluate(expression, {"x": block["x"].chunk(0).cast(pa.large_string())}, len(block))
            except native.NeedsCatalyst:
                left += len(block)
                continue
            assert got.to_pylist() == block[op].to_pylist()
    assert 0 < left < 36_000 < 2 * len(points)  # the letters of the second plane and very few others


def test_a_capital_sigma_is_left_to_catalyst() -> None:
    lower = Expression("Lower", STRING, "lower(x)", (column("x", STRING),))
    with pytest.raises(native.NeedsCatalyst, match="versions of Unicode"):
        native.evaluate(lower, {"x": pa.array(["ΟΔΟΣ"], pa.large_string())}, 1)


def test_empty_sliced_and_differently_encoded_columns() -> None:
    words = pa.array(["skip", "é", None, "abc"])
    for op, want in (("Length", [1, None, 3]), ("OctetLength", [2, None, 3])):
        expression = Expression(op, SqlType("int"), "", (column("x", STRING),))
        for array in (words[1:], words.dictionary_encode()[1:], words.cast(pa.large_string())[1:]):
            assert native.evaluate(expression, {"x": array}, 3).to_pylist() == want
        assert native.evaluate(expression, {"x": words[:0]}, 0).to_pylist() == []
    instr = Expression("StringInstr", SqlType("int"), "", (column("x", STRING), literal("c")))
    assert native.evaluate(instr, {"x": pa.array(["skip", "éc", None, "abc"])[1:]}, 3).to_pylist() == [2, None, 3]
    assert native.evaluate(instr, {"x": words[:0]}, 0).to_pylist() == []
    assert native.evaluate(instr, {"x": pa.array([None, None], pa.string())}, 2).to_pylist() == [None, None]
