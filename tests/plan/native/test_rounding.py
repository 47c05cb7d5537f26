"""Rounding against Spark: decimals to any place, doubles to whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.plan.native import rounding

DECIMALS = ("p", "q", "w", "h", "m", "c", "r", "t")
EXPRESSIONS = [
    *(f"{f}({a}1)" for f in ("floor", "ceil") for a in (*DECIMALS, "y", "ti", "xi", "xl")),
    *(f"{f}({a}1, {n})" for f in ("round", "bround") for a in DECIMALS for n in (0, 1, 2, 5, 18) if a not in "wh"),
    *(f"{f}({a}1, {n})" for f in ("round", "bround") for a in "pqcm" for n in (-1, -2, -5)),
    *(f"{f}({a}1, {n})" for f in ("floor", "ceil") for a in "pqcmr" for n in (1, 2, 5)),
    *(f"{f}({a}1, {n})" for f in ("floor", "ceil") for a in "pqcm" for n in (-1, -3)),
    *(f"round({a}1{n})" for a in ("ti", "si", "xi", "xl") for n in ("", ", 2")),
    "round(c1 / 3, 2)",
    "floor(c1 * q1)",
    "floor(if(abs(d1) < 9, d1, double('NaN')))",
]
TOO_LARGE = ["floor(d1)", "ceil(d1)", "floor(f1)", "ceil(f1)"]


def test_rounding_gives_sparks_values(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, rounding.RULES)
    agrees([*EXPRESSIONS, *TOO_LARGE], ansi=False)


@pytest.mark.parametrize("text", TOO_LARGE)
def test_what_is_too_large_is_left_to_catalyst(refuses: Callable[..., None], text: str) -> None:
    refuses(text)


@pytest.mark.parametrize(
    ("text", "op"), [("round(d1, 2)", "Round"), ("round(xi1, -1)", "Round"), ("ceil(d1, 1)", "Cast")]
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)
