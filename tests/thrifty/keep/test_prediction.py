"""Which changes are expected next, and how far off that was."""

from __future__ import annotations

import pytest

from headrace.thrifty.keep.prediction import Change, Prediction
from headrace.thrifty.keep.sizes import bytes_of, size_text


def test_late_data_has_a_geometric_tail() -> None:
    late = Prediction()
    for rows in (9_000.0, 900.0, 90.0):
        late = late.after({"orders": Change(rows)})
    assert late.next()["orders"].inserted == pytest.approx(9.0)
    assert late.error is not None
    assert late.error < 0.7


def test_a_table_that_is_done_is_not_expected() -> None:
    cleaning = Prediction()
    for _ in range(4):
        cleaning = cleaning.after({"part": Change(10.0)})
    for _ in range(3):
        cleaning = cleaning.after({"orders": Change(10.0)})
    assert set(cleaning.next()) == {"orders"}
    assert cleaning.missed == 1


def test_what_the_user_says_comes_first() -> None:
    said = Prediction(said={"part": Change(5.0, 5.0), "orders": Change()})
    assert said.next() == {"part": Change(5.0, 5.0)}
    assert said.after({"part": Change(5.0, 5.0)}).error == 0.0
    assert said.after({"orders": Change(1.0)}).error == 1.0


def test_it_is_written_down() -> None:
    one = Prediction(said={"part": Change(1.0)}).after({"part": Change(3.0, 1.0)})
    assert Prediction.from_json(one.to_json()) == one
    assert Prediction.from_json({}) == Prediction()


def test_sizes() -> None:
    assert bytes_of("1.5 MB") == 1_500_000
    assert bytes_of("0") == 0
    assert size_text(1) == "1 byte"
