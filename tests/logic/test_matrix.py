"""The support matrix of the docs says what the case files check."""

from __future__ import annotations

from tests.logic.matrix import PAGE, page


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.logic.matrix`"


def test_there_are_at_least_three_hundred_statements() -> None:
    total = next(line for line in page().splitlines() if line.startswith("| **all** |"))
    assert int(total.split("**")[3]) >= 300
