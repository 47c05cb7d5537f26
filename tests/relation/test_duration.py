"""Durations: what is read, how it is written again, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import SchemaError
from headrace.relation.duration import Duration


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("10 minutes", "10 minutes"),
        ("  1   HOUR ", "1 hour"),
        ("90 minutes", "1 hour 30 minutes"),
        ("interval 1 week 2 days 3 hours 4 minutes 5 seconds 6 milliseconds 7 microseconds",
         "1 week 2 days 3 hours 4 minutes 5 seconds 6 milliseconds 7 microseconds"),
        ("1 day -1 hour", "23 hours"),
        ("0 seconds", "0 seconds"),
        ("250milliseconds", "250 milliseconds"),
        (timedelta(days=8, microseconds=1), "1 week 1 day 1 microsecond"),
        (Duration(60_000_000), "1 minute"),
    ],
)  # fmt: skip
def test_durations_are_read_and_written(given: object, written: str) -> None:
    assert str(Duration.parse(given)) == written
    assert Duration.parse(str(Duration.parse(given))) == Duration.parse(given)


@pytest.mark.parametrize(
    "given",
    ["", "10", "minutes", "ten minutes", "10 minutes and", "1 month", "2 years", "1.5 hours", "-1 second",
     "1 fortnight", "200000 days", "10 minutes'); DROP TABLE t; --", 600, None, timedelta(seconds=-1)],
)  # fmt: skip
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(SchemaError) as caught:
        Duration.parse(given)
    assert caught.value.way_out
