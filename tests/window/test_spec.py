from datetime import timedelta

import numpy as np
import pytest

from headrace.errors import SchemaError
from headrace.relation.duration import Duration
from headrace.window.spec import Aggregate, WindowSpec


def test_windows_tumble_and_are_answered_at_their_end_if_nothing_else_is_said() -> None:
    spec = WindowSpec.parse("10 ms")
    assert (spec.length, spec.slide, spec.emit_after, spec.horizon) == (10_000, 10_000, 10_000, 100_000)
    assert (spec.start(3), spec.end(3), spec.emitted_at(3), spec.complete_at(3)) == (30_000, 40_000, 40_000, 140_000)
    slides = WindowSpec.parse(
        "10 ms", slide="5 ms", emit_after=timedelta(milliseconds=7), horizon="1 second", agg="avg(v)"
    )
    assert (slides.slide, slides.emit_after, slides.horizon, slides.overlap) == (5_000, 7_000, 1_000_000, 2)
    assert WindowSpec.parse("1 ms", emit_after="1 minute", horizon="0 seconds").complete_at(0) == 60_000_000


@pytest.mark.parametrize(("length", "slide"), [(10, 10), (10, 3), (9, 3), (7, 5), (1, 1)])
def test_windows_of_a_time(length: int, slide: int) -> None:
    spec = WindowSpec(length, slide, 1, 0)
    for time in range(-40, 40):
        inside = [w for w in range(-60, 60) if spec.start(w) <= time < spec.end(w)]
        assert spec.first_window(np.array([time]))[0] == inside[0]
        assert spec.last_window(np.array([time]))[0] == inside[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": "0 ms"}, "no room"),
        ({"window": "-1 ms"}, "negative"),
        ({"window": "10 parsecs"}, "unknown unit"),
        ({"window": 10}, "no duration"),
        ({"window": "10 ms", "slide": "11 ms"}, "leave rows out"),
        ({"window": "10 ms", "slide": "0 ms"}, "never move"),
        ({"window": "10 seconds", "slide": "1 ms"}, "10,000 windows"),
        ({"window": "10 ms", "emit_after": "0 ms"}, "before the window starts"),
        ({"window": "10 ms", "emit_after": "-5 ms"}, "negative"),
        ({"window": "10 ms", "agg": "median(v)"}, "no aggregate"),
        ({"window": "10 ms", "agg": "count(v)"}, "counted"),
        ({"window": "10 ms", "agg": "sum"}, "names no column"),
        ({"window": "10 ms", "agg": "sum(*)"}, "names no column"),
        ({"window": "10 ms", "agg": "sum(v); drop"}, "no aggregate"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    window = given.pop("window")
    with pytest.raises(SchemaError, match=said) as refusal:
        WindowSpec.parse(window, **given)  # type: ignore[arg-type]
    assert refusal.value.way_out


def test_aggregates_are_read() -> None:
    assert Aggregate.parse("COUNT(*)") == Aggregate("count") == Aggregate.parse("count")
    assert Aggregate.parse("Sum( v )") == Aggregate("sum", 0, "v")
    assert Aggregate.parse("avg(S.price)") == Aggregate("avg", 1, "price")
    assert Aggregate.parse("avg(left.`unit price`)") == Aggregate("avg", 0, "unit price")
    assert str(Aggregate.parse("sum(right.v)")) == "sum(right.v)"


def test_short_units() -> None:
    assert [Duration.parse(text).microseconds for text in ("10 ms", "5us", "2 s", "1 min", "1 h 1 d")] == [
        10_000,
        5,
        2_000_000,
        60_000_000,
        90_000_000_000,
    ]
