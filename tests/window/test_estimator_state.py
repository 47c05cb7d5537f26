"""A window join that is saved and restored at any moment goes on as if nothing had been."""

import json

import numpy as np
import pytest
from tests.window.streams import arrivals_of, steady

from headrace.bench.disorder.local_join import Bucket
from headrace.errors import CorruptFileError
from headrace.window.answers import Answer, Answers
from headrace.window.estimator_state import from_text, to_text
from headrace.window.estimators import ESTIMATORS, make_estimator
from headrace.window.spec import WindowSpec


def told(answer: Answer) -> tuple[object, ...]:
    bounds = [(e.value, e.low, e.high) for e in answer.estimates.values()]
    return answer.window, answer.at, answer.final, answer.observed, bounds


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("aggregate", ["count", "avg(v)"])
def test_after_a_restart_answers_are_the_same(name: str, aggregate: str) -> None:
    spec = WindowSpec.parse("10 ms", emit_after="8 ms", horizon="25 ms", agg=aggregate)
    rows = arrivals_of(steady(700_000, rate=10_000))
    batches = [rows.slice(int(b[0]), int(b[-1]) + 1) for b in np.array_split(np.arange(len(rows)), 9)]

    def made() -> Answers:
        return Answers(spec, {name: make_estimator(name, spec, seed=5)})

    bucket, steadily, restarted = Bucket(spec), made(), made()
    for batch in batches:
        tally = bucket.add(batch)
        text = to_text(restarted)
        restarted = made()
        from_text(restarted, text)
        assert [told(a) for a in steadily.advance(tally)] == [told(a) for a in restarted.advance(tally)]
    assert to_text(restarted) == to_text(steadily)


def test_what_cannot_be_read_is_said() -> None:
    spec = WindowSpec.parse("10 ms")
    answers = Answers(spec, {"auto": make_estimator("auto", spec)})
    text = to_text(answers)
    broken = json.loads(text)
    del broken["windows"]
    for damaged in (text[:50], "{}", json.dumps(broken), text.replace('"array":"', '"array":"!!')):
        with pytest.raises(CorruptFileError, match="window join"):
            from_text(Answers(spec, {"auto": make_estimator("auto", spec)}), damaged)
