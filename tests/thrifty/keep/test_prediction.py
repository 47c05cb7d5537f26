"""Which changes are expected next, and how far off that was."""

from __future__ import annotations

import pytest

from headrace.thrifty.keep.change import Change, Rate, about_equal
from headrace.thrifty.keep.prediction import Prediction
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


def test_sources_come_before_what_has_come() -> None:
    loaded = Prediction().after({"orders": Change(100.0)}).after({"shops": Change(50.0)})
    fed = loaded.announcing("file", {"orders": Change(8.0, 2.0), "items": Change()})
    assert fed.next() == {"orders": Change(8.0, 2.0)}, "shops were loaded before the file began"
    beside = fed.after({"shops": Change(5.0)})
    assert beside.next().keys() == {"orders", "shops"}, "shops change while the file is played"
    assert beside.announcing("file", {"orders": Change(9.0)}).next().keys() == {"orders", "shops"}
    assert beside.announcing("file", None).next().keys() == {"orders", "shops"}
    assert fed.announcing("file", None).next() == loaded.next()


def test_all_sources_count_until_they_end() -> None:
    both = Prediction().announcing("a", {"orders": Change(5.0)})
    both = both.announcing("b", {"orders": Change(7.0), "shops": Change(1.0)})
    assert both.next() == {"orders": Change(7.0), "shops": Change(1.0)}
    assert both.announcing("b", None).next() == {"orders": Change(5.0)}
    assert both.announcing("a", None).announcing("b", None).next() == {}


def test_the_user_knows_better_than_sources() -> None:
    said = Prediction(said={"part": Change(5.0)}).announcing("file", {"orders": Change(9.0)})
    assert said.next() == {"part": Change(5.0)}


def test_the_error_of_an_announcement_is_told() -> None:
    fed = Prediction().announcing("file", {"orders": Change(8.0)})
    assert fed.after({"orders": Change(8.0)}).error == 0.0
    assert fed.after({"orders": Change(4.0)}).error == pytest.approx(0.5)


def test_announcements_are_written_down() -> None:
    fed = Prediction().after({"shops": Change(1.0)}).announcing("file", {"orders": Change(8.0, 1.0)})
    assert Prediction.from_json(fed.to_json()) == fed


def test_a_rate_is_that_of_the_last_batches() -> None:
    rate = Rate()
    for rows in (1_000.0, 10.0, 20.0, 10.0, 20.0):
        rate = rate.after({"orders": Change(rows, 2.0)})
    assert rate.per_batch() == {"orders": Change(15.0, 2.0)}
    assert Rate().per_batch() == {}


def test_expectations_are_about_equal() -> None:
    some = {"orders": Change(10.0)}
    assert about_equal(some, {"orders": Change(20.0)})
    assert about_equal(some, {"orders": Change(3.0, 2.0)})
    assert not about_equal(some, {"orders": Change(21.0)})
    assert not about_equal(some, {"orders": Change(4.0)})
    assert not about_equal(some, {"shops": Change(10.0)})
