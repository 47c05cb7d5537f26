"""Digests of texts against Spark, over all of Unicode."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.plan.native import digests

EXPRESSIONS = [
    *(f"{function}({a}1)" for function in ("md5", "sha", "crc32") for a in "es"),
    *(f"sha2({a}1, {bits})" for bits in (0, 224, 256, 384, 512) for a in "es"),
    "md5(concat(s1, '|', e2))",
]


def test_digests_are_sparks(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, digests.RULES)


@pytest.mark.parametrize(
    ("text", "op"), [("sha2(s1, 100)", "Sha2"), ("sha2(s1, i1)", "Sha2"), ("md5(unhex(s1))", "Md5")]
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)
