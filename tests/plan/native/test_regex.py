"""Regular expressions and delimiters against Spark: vetted and random patterns over line breaks and all of Unicode."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.native import delimited, regex
from headrace.relation.types import SqlType

STRING = SqlType("string")
BREAKS = ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\n\n", "\n\r"]
TEXTS = [
    "", "a", "b", "ab", "ba", "aab", "abab", "a.b", "a-b", "a b", "a1", "1", "12", "_", "é", "aé",
    "\U0001f600", "x\U0001f600b",
    "a\U0001f600", "(a|b)", "[a]", "a+", "$", "^", "\\", "a\\b", "A", "aB", "٣", "a\u00a0b", "\tab", "\ud7ff", "\ue000",
    *(pad + mark + end for mark in BREAKS for pad in ("", "a", "ab") for end in ("", "b")),
]  # fmt: skip
PATTERNS = [
    "a", "^a", "a$", "^a$", "^ab?$", "a.b", "^.$", "^..$", ".*", "^.*$", "^.+b$", "a|b", "(a|b)b",
    "^(?:a|ab)+$", "a{2}", "a{2,}",
    "^a{1,2}b*?$", "[ab]", "[^ab]", "^[^ab]", "[a-b0-9]+", "[-a]", "[a-]", "[a.]b", "[.+*?()$|]", r"\d",
    r"^\d+$", r"\w", r"\W",
    r"\s", r"a\sb", r"[\s\d]", r"[\w-]", r"\.", r"\$", r"a\+", r"[\[\]]", "é", "[A-Z]", "^a b$", "a-b",
    "(a)(b)?", r"\D",
    "b$", "^.b$", r"\(a\|b\)",
]  # fmt: skip
LEFT = [
    "", "a(?=b)", "(?i)a", r"\bab", r"\Qa\E", "a++", "a*+", "[a&&b]", "[[a]b]", "^a|b$", "a||b", "()", "a**",
    "[]a]", "[b-a]", "{",
    "a{,2}", "a{3,2}", r"\p{L}", r"\R", r"(a)\1", "[^a]$", r"\s$", "$a", "a^", "a\n", "[a-é]", "(a", "a)",
    "\\", "[a", r"\x41", "$",
    "[a-b-c]", "[\\d-a]", "a$$", "(?<n>a)", "\u2028", r"^\\$",
]  # fmt: skip


def found(spark: SparkSession, patterns: list[str]) -> list[list[bool]]:
    frame = spark.createDataFrame(pa.table({"x": TEXTS})).coalesce(1)
    rows = frame.select(*(F.col("x").rlike(pattern).alias(f"p{i}") for i, pattern in enumerate(patterns))).toArrow()
    return [rows[f"p{i}"].to_pylist() for i in range(len(patterns))]


def natively(pattern: str) -> list[bool]:
    literal = Expression("literal", STRING, "", value=pattern, nullable=False)
    rlike = Expression("RLike", SqlType("boolean"), "", (column("x", STRING), literal))
    assert native.supported(rlike), pattern
    return list(native.evaluate(rlike, {"x": pa.array(TEXTS, pa.large_string())}, len(TEXTS)).to_pylist())


def drawn(pick: random.Random, depth: int = 2) -> str:
    atoms = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\s", r"\w", "é", r"\W", "[a-b_-]", "1", r"\."]
    parts = []
    for _ in range(pick.randint(1, 3)):
        atom = pick.choice(atoms)
        if depth and pick.random() < 0.3:
            atom = f"({pick.choice(['', '?:'])}{drawn(pick, depth - 1)}{pick.choice(['', '|' + drawn(pick, 0)])})"
        parts.append(atom + pick.choice(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?"]))
    return "".join(parts)


def test_patterns_find_what_java_finds(spark: SparkSession) -> None:
    pick = random.Random(7)
    random_ones = [pick.choice(["", "^"]) + drawn(pick) + pick.choice(["", "$"]) for _ in range(150)]
    patterns = [pattern for pattern in dict.fromkeys([*PATTERNS, *random_ones]) if regex.re2(pattern) is not None]
    assert set(PATTERNS) <= set(patterns)
    assert len(patterns) > 150
    for pattern, expected in zip(patterns, found(spark, patterns), strict=True):
        got = natively(pattern)
        assert got == expected, (pattern, [t for t, g, e in zip(TEXTS, got, expected, strict=True) if g != e])


@pytest.mark.parametrize("pattern", LEFT)
def test_other_patterns_are_left_to_catalyst(pattern: str) -> None:
    assert regex.re2(pattern) is None


SPLITS = [",", " ", "a", "ab", "\\\\.", "\\\\|", "é", ", "]
EXPRESSIONS = [
    *(f"{a}1 RLIKE '{p}'" for a in "es" for p in ("^a", "a.b", "special.*requests", "[0-9]+$", "(a|b)b")),
    *(
        f"substring_index({a}1, '{d}', {n})"
        for a in "es"
        for d in (" ", "a", "ab", "é", ".", "語")
        for n in (1, 2, 3, -1, -2)
    ),
    *(f"split({a}1, '{d}')[0]" for a in "es" for d in SPLITS),
    *(f"get(split({a}1, '{d}'), {n})" for a in "es" for d in SPLITS for n in (1, 2)),
]


def test_parts_of_texts_are_sparks(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, regex.RULES | delimited.RULES)
    agrees([*EXPRESSIONS, "split(e1, ' ')[2]"], ansi=False)


def test_a_missing_part_is_left_to_catalyst(refuses: Callable[..., None]) -> None:
    refuses("split(e1, ' ')[1]")


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("substring_index(s1, 'aa', 1)", "SubstringIndex"),
        ("substring_index(s1, '', 1)", "SubstringIndex"),
        ("substring_index(s1, s2, 1)", "SubstringIndex"),
        ("substring_index(s1, 'a', 0)", "SubstringIndex"),
        ("substring_index(s1, 'a', 101)", "SubstringIndex"),
        ("split(s1, '[a]')[0]", "GetArrayItem"),
        ("split(s1, '.')[0]", "GetArrayItem"),
        ("split(s1, '')[0]", "GetArrayItem"),
        ("split(s1, 'a', 2)[0]", "GetArrayItem"),
        ("split(s1, 'a')[i1]", "GetArrayItem"),
        ("s1 RLIKE s2", "RLike"),
    ],
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)
