"""A window join as a maintained view: pure functions over runs, like every other view.

The first stage runs in the buckets of keys: it adds rows that arrived to the state per (window, key), and sends on how
much the totals of windows grow. The second stage runs in one bucket: it adds these up, restores the estimators, and
answers windows. Both stages keep runs and nothing else, so a window join is committed, restarted and read like any
view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.kernel import Evaluated, Incoming, Lifted, MapSide, Reduced, Sent, State, ViewChange, ViewKernel
from headrace.plan.expression import Expression
from headrace.relation import kernels
from headrace.relation.arrangement import scan
from headrace.relation.columns import take_column
from headrace.relation.kernels import Words
from headrace.relation.keys import KeyLayout, validity
from headrace.relation.residence import Residence
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun
from headrace.rings import COUNT, Group
from headrace.rings.double import Compensated
from headrace.rings.integer import Integer
from headrace.rings.product import Product
from headrace.window.answers import Answer, Answers
from headrace.window.arrivals import Arrivals, bucket_of, lead_of
from headrace.window.emitted import ANSWERS, EmittedAnswers
from headrace.window.estimator_state import from_text, to_text
from headrace.window.estimators import make_estimator
from headrace.window.exact import time_words, times_of
from headrace.window.groups import GROUPS, KEYS, MATCHES, group_run, key_run, new_keys
from headrace.window.matching import Matching, matching_of
from headrace.window.spec import Times, WindowSpec
from headrace.window.tally import DelayCounts, Tally
from headrace.window.totals import Deltas

SIDES = ("left", "right")
LATE, ESTIMATOR_STATE = "late", "estimator_state"
ESTIMATE, FINAL, ALL = "estimate", "final", "all"
REVISIONS = (ESTIMATE, FINAL, ALL)

_ROWS, _DELAYS, _CLOCK, _DELTAS = "rows", "delays", "clock", "deltas"
_DELTA = Product((Integer(), Integer(), Integer(), Compensated()))
_TEXT = "text"
_LATE_TIMES = 3  # words of a late row before those of its key: side, event and arrival
_ONE = 0  # the bucket of the second stage


@dataclass(frozen=True)
class Side:
    """What a window join reads of one stream."""

    table: str
    keys: tuple[Expression, ...]
    event: Expression
    arrival: Expression
    value: Expression | None = None  # the aggregated column, if this side has it
    only: Expression | None = None  # the condition on rows of the table to be in this stream


@dataclass(frozen=True)
class WindowView(ViewKernel):
    """A maintained window join.

    Parameters
    ----------
    revisions : which answers of a window are emitted: its "estimate", its "final" answer, or "all": the estimate, which
        revisions and then the final answer replace.
    by_key : whether the exact answers per key are kept too.
    """

    spec: WindowSpec
    streams: tuple[Side, Side]
    seed: int
    estimator: str = "auto"
    interval: float = 0.95
    revisions: str = ESTIMATE
    by_key: bool = False

    # -- the protocol of a view ---------------------------------------------------------------------------------------

    @cached_property
    def matching(self) -> Matching:
        """How rows of the two streams meet in a bucket."""
        return matching_of(self.spec)

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        return tuple(
            MapSide(s.table, source, s.only, s.keys, (s.event, s.arrival, *(() if s.value is None else (s.value,))))
            for source, s in zip(SIDES, self.streams, strict=True)
        )

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        groups: dict[str, Group] = {GROUPS: MATCHES, KEYS: COUNT} if self.by_key else {}
        return {**self.matching.arrangements, LATE: COUNT, **groups, ESTIMATOR_STATE: COUNT, ANSWERS: COUNT}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are joined."""
        return tuple(dict.fromkeys(side.table for side in self.streams))

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        later = (ESTIMATOR_STATE, ANSWERS)
        return (tuple(part for part in self.arrangements if part not in later), later)

    def home(self, part: str, bucket: int) -> int:
        return bucket

    @property
    def never_by_catalyst(self) -> bool:
        return True  # it reads columns as they are, and has no query that Catalyst could have read

    def residences(self, buckets: int) -> dict[str, Residence]:
        # Where the words of the join's key begin in those of an entry; the last stage has one bucket.
        begins = {**self.matching.key_at, LATE: _LATE_TIMES, GROUPS: 1, KEYS: 0}
        found = {part: Residence(buckets, None, _ONE) for part in (ESTIMATOR_STATE, ANSWERS)}
        for part in self.arrangements.keys() - found.keys():
            at = slice(begins[part], begins[part] + self.keys.width)
            found[part] = Residence(buckets, partial(_lead_of_key, at=at))
        return found

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        """Return the reason per row that cannot be joined: a NULL, an event after its arrival, a value such as NaN."""
        side = self.streams[SIDES.index(source)]
        named = [
            *zip(side.keys, rows.keys, strict=True),
            (side.event, rows.arguments[0]),
            (side.arrival, rows.arguments[1]),
        ]
        reasons: dict[int, str] = {}
        whole = np.ones(len(rows.diff), bool)
        for expression, column in named:
            if column.null_count:
                what = "time" if expression in (side.event, side.arrival) else "key"
                missing = ~validity(column)
                whole &= ~missing
                said = f"NULL in the {what} {expression} of a window join"
                reasons |= {int(i): said for i in np.flatnonzero(missing)}
        known = np.flatnonzero(whole)
        event, arrival = (_micros(take_column(column, known)) for column in rows.arguments[:2])
        early = known[arrival < event]
        reasons |= {int(i): f"its {side.event} is after its arrival at {side.arrival}" for i in early}
        if side.value is not None:
            values = _doubles(take_column(rows.arguments[2], known))
            bad = known[~np.isfinite(values)]
            reasons |= {int(i): f"{side.value} is NULL, NaN or infinite, and cannot be summed" for i in bad}
        return reasons

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        arrivals, origin = self._arrivals(SIDES.index(source), rows)
        late = arrivals.arrival - arrivals.event > self.spec.horizon
        moments = self.spec.seen_from(arrivals.arrival)
        order, starts = np.empty(len(arrivals), np.int64), np.empty(buckets + 1, np.int64)
        kernels.split_by(bucket_of(arrivals, buckets), buckets, order, starts)
        out: Lifted = {}
        for bucket in range(buckets):
            at = order[starts[bucket] : starts[bucket + 1]]
            in_time = at[~late[at]]
            runs = self._rows(arrivals.take(in_time), moments[in_time])
            runs |= self._late(arrivals, rows, origin, at[late[at]])
            if self.by_key and len(in_time):
                runs[KEYS] = key_run(arrivals.key[:, in_time], rows.keys, origin[in_time])
            if bucket == _ONE:
                runs |= self._delays(arrivals.take(~late), moments[~late])
            heard = arrivals.arrival if bucket == _ONE else arrivals.arrival[at]
            if len(heard):
                out[bucket] = runs | {_CLOCK: _clock(heard)}
        return out

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        return self._count(state, incoming) if stage == 0 else self._answer(state, incoming)

    # -- from rows to runs --------------------------------------------------------------------------------------------

    @cached_property
    def keys(self) -> KeyLayout:
        """How keys become words; equal keys of both sides have equal words."""
        types = tuple(expression.type for expression in self.streams[0].keys)
        return KeyLayout(types, (False,) * len(types), self.seed)

    def _arrivals(self, side: int, rows: Evaluated) -> tuple[Arrivals, NDArray[np.int64]]:
        """Return rows as arrivals, each as often as its multiplicity says, and which row each arrival is."""
        origin = np.repeat(np.arange(len(rows.diff)), rows.diff)
        value = _doubles(rows.arguments[2]) if len(rows.arguments) > 2 else np.zeros(len(rows.diff))
        event, arrival = (_micros(column) for column in rows.arguments[:2])
        numbers = np.full(len(rows.diff), side, np.int8)
        return Arrivals(numbers, self.keys.encode(rows.keys), value, event, arrival).take(origin), origin

    def _rows(self, arrivals: Arrivals, moments: Times) -> dict[str, Run]:
        if not len(arrivals):
            return {}
        return {_ROWS: self.matching.run(arrivals, moments)}

    def _delays(self, arrivals: Arrivals, moments: Times) -> dict[str, Run]:
        """Count delays, which estimators learn from; over all keys at once, which is less than per bucket of keys."""
        if not len(arrivals):
            return {}
        counts = DelayCounts.of_rows(self.spec, arrivals, moments)
        words = time_words(np.concatenate([counts.moment[None, :], counts.cell]))
        return {_DELAYS: Run(words, (counts.count.astype(np.int64),))}

    def _late(
        self, arrivals: Arrivals, rows: Evaluated, origin: NDArray[np.int64], at: NDArray[np.int64]
    ) -> dict[str, Run]:
        """Return the rows that came after the horizon, which are kept aside."""
        if not len(at):
            return {}
        some = arrivals.take(at)
        times = np.stack([some.side.astype(np.int64), some.event, some.arrival])
        values: dict[str, Any] = {f"k{i}": take_column(key, origin[at]) for i, key in enumerate(rows.keys)}
        values["v"] = pa.array(some.value)
        words = np.concatenate([time_words(times), some.key])
        return {LATE: consolidate(COUNT, words, COUNT.ones(len(at)), values)}

    # -- the first stage ----------------------------------------------------------------------------------------------

    def _count(self, state: State, incoming: Incoming) -> Reduced:
        done = Reduced()
        if incoming.get(LATE):
            late = merge(COUNT, incoming[LATE])
            done.runs[LATE], done.live[LATE] = late, late.rows
        clock = merge(COUNT, incoming[_CLOCK])
        done.sent.append(Sent(1, _ONE, _CLOCK, clock))
        if incoming.get(_ROWS):
            rows = merge(self.matching.row_ring, incoming[_ROWS])
            counted = self.matching.count(state, rows, int(times_of(clock.words[0]).max()))
            for part, (run, more) in counted.grown.items():
                done.runs[part], done.live[part] = run, more
            done.sent.append(Sent(1, _ONE, _DELTAS, _delta_run(counted.deltas)))
            if self.by_key:
                for part, found in (
                    (GROUPS, group_run(counted.matched)),
                    (KEYS, new_keys(state[KEYS], incoming[KEYS])),
                ):
                    if found is not None:
                        done.runs[part], done.live[part] = found, found.rows
        if incoming.get(_DELAYS):
            done.sent.append(Sent(1, _ONE, _DELAYS, merge(COUNT, incoming[_DELAYS])))
        return done

    # -- the second stage ---------------------------------------------------------------------------------------------

    def restored(self, runs: Sequence[AnyRun]) -> tuple[Answers, Run | None]:
        """Return the answers and estimators as of the last step, and the run that has their state."""
        answers = Answers(
            self.spec,
            {self.estimator: make_estimator(self.estimator, self.spec, interval=self.interval)},
            self.interval,
            revises=self.revisions == ALL,
        )
        before = scan(COUNT, runs)
        if before is not None and before.rows:
            from_text(answers, before.values[_TEXT][0].as_py())
        return answers, before

    def _answer(self, state: State, incoming: Incoming) -> Reduced:
        answers, before = self.restored(state[ESTIMATOR_STATE])
        run, summary = self._emitted(answers.advance(_tally(incoming)), state[ANSWERS])
        done = Reduced(changes=run, summary=summary)
        if run is not None:
            done.runs[ANSWERS], done.live[ANSWERS] = run, summary.inserted - summary.deleted
        done.runs[ESTIMATOR_STATE], done.live[ESTIMATOR_STATE] = _replaced(before, to_text(answers))
        return done

    def at_the_end(self, state: Sequence[AnyRun], answers: Sequence[AnyRun]) -> list[AnyRun]:
        """Return all answers, as if no more rows came and time passed until every window is complete."""
        known, _ = self.restored(state)
        run, _ = self._emitted(known.finish(), answers)
        return [*answers, *([] if run is None else [run])]

    def _emitted(self, answers: Iterable[Answer], before: Sequence[AnyRun]) -> tuple[Run | None, ViewChange]:
        emitted = EmittedAnswers(self.estimator, before)
        for answer in answers:
            if self._is_emitted(answer):
                emitted.add(answer, replaces=self.revisions == ALL)
        return emitted.change()

    def _is_emitted(self, answer: Answer) -> bool:
        return self.revisions == ALL or answer.final == (self.revisions == FINAL)


def _lead_of_key(words: Words, at: slice) -> NDArray[np.uint64]:
    return lead_of(words[at])


def _tally(incoming: Incoming) -> Tally:
    clock = times_of(merge(COUNT, incoming[_CLOCK]).words[0])
    deltas, delays = Deltas.nothing(), DelayCounts.nothing()
    if incoming.get(_DELTAS):
        run = merge(_DELTA, incoming[_DELTAS], keep_zeros=True)
        numbers = [*(column.astype(np.float64) for column in run.payload[:3]), Compensated().values(run.payload[3:])]
        deltas = Deltas(times_of(run.words[0]), times_of(run.words[1]), np.stack(numbers))
    if incoming.get(_DELAYS):
        run = merge(COUNT, incoming[_DELAYS])
        delays = DelayCounts(times_of(run.words[0]), times_of(run.words[1:]), run.payload[0].astype(np.float64))
    return Tally(deltas, delays, int(clock.min()) if len(deltas) else None, int(clock.max()))


def _clock(arrival: Times) -> Run:
    """Return a run with the first and the last arrival of some rows."""
    return consolidate(COUNT, time_words(np.array([arrival.min(), arrival.max()]))[None, :], COUNT.ones(2), {})


def _delta_run(deltas: Deltas) -> Run:
    counts = tuple(np.rint(column).astype(np.int64) for column in deltas.amounts[:3])
    words = time_words(np.stack([deltas.moment, deltas.window]))
    return Run(words, counts + Compensated().lift(deltas.amounts[3]))


def _replaced(before: Run | None, text: str) -> tuple[Run, int]:
    """Return a run that replaces the stored text, and by how many entries it grows the state."""
    values = pa.array([text], pa.large_string())
    if before is None or not before.rows:
        return Run(np.zeros((1, 1), np.uint64), COUNT.ones(1), {_TEXT: values}), 1
    words = np.concatenate([before.words, before.words + np.uint64(1)], axis=1)
    old = before.values[_TEXT].cast(pa.large_string())
    return Run(words, (np.array([-1, 1]),), {_TEXT: pa.concat_arrays([old, values])}), 0


def _micros(column: pa.Array) -> Times:
    times: Times = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times


def _doubles(column: pa.Array) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values
