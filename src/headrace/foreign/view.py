"""A view over a foreign-key join as the runtime sees it.

Rows enter where their source waits for its first child, and go on from join to join as far as they are alive. Those
that come out at the root are exactly the rows of the join that appear or disappear in the step; the view's groups are
kept from them as those of a view over one table are. Where a group lies wholly in the bucket in which its rows come
out, it stays there; else shares of groups are summed over buckets, so no key, however often it occurs, is one task's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.foreign.chain import ChainPlan, Join, Target
from headrace.foreign.live import LiveJoin, Tuples
from headrace.foreign.output import JoinedRowsOutput
from headrace.operators.aggregate import maintain
from headrace.operators.delta import deltas, group_words, split
from headrace.operators.kernel import Evaluated, Incoming, Lifted, MapSide, Reduced, State, ViewKernel
from headrace.operators.layout import COUNT, GROUPS, ViewLayout
from headrace.operators.operator import grown
from headrace.plan.rows import JoinedRows
from headrace.plan.view import Shape
from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.relation.keys import validity
from headrace.relation.run import Run, merge, take_values
from headrace.relation.variables import Variables
from headrace.rings import Group


@dataclass(frozen=True)
class ForeignView(ViewKernel):
    """A maintained view over a foreign-key join."""

    rows: JoinedRows
    chain: ChainPlan
    variables: Variables
    layout: ViewLayout
    buckets: int

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        return tuple(
            MapSide(s.table, s.name, s.condition, tuple(e for _, e in s.variables), ()) for s in self.rows.sources
        )

    @cached_property
    def stays(self) -> bool:
        """Whether groups lie wholly in the bucket in which the joined rows of them come out."""
        if self.layout.plan.shape is Shape.ROWS:
            return True
        grouped = {str(key.value) for key in self.rows.keys if key.op == "column"}
        return grouped.issuperset(self.chain.final.partition or ())

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        kept: dict[str, Group] = {part: COUNT for join in self.chain.joins for part in (join.waiting, join.live)}
        return kept | dict(self.layout.arrangements)

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        out = [
            [part for join in self.chain.joins if join.level == level for part in (join.waiting, join.live)]
            for level in range(self.chain.levels)
        ]
        answer = list(self.layout.arrangements)
        if self.stays:
            out[self.chain.final.level] += answer
        else:
            out.append(answer)
        return tuple(tuple(parts) for parts in out)

    @cached_property
    def _shared(self) -> frozenset[str]:
        return frozenset(
            part for join in self.chain.joins for part in (join.waiting, join.live) if self.chain.is_shared(join, part)
        )

    def home(self, part: str, bucket: int) -> int:
        return 0 if part in self._shared else bucket

    @cached_property
    def output(self) -> JoinedRowsOutput:
        """What is made of the joined rows."""
        return JoinedRowsOutput(self.rows, self.variables, self.layout)

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(name for name in self.rows.shown if self.variables.kinds[name].type.kind == "string")

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        return self.output.refused(self.rows.source(source), rows)

    # -- the map side ---------------------------------------------------------------------------------------------

    def lift(self, source: str, rows: Evaluated, buckets: int, own: Collection[int] | None) -> Lifted:
        rows = self._taking_part(source, rows)
        out: Lifted = {}
        for target in self.chain.entry[source]:
            for bucket, run in self._entering(source, target, rows, buckets, own).items():
                if run.rows:
                    out.setdefault(bucket, {})[target.part] = run
        return out

    def _taking_part(self, source: str, rows: Evaluated) -> Evaluated:
        """Drop rows with NULL where another table must be equal: NULL equals nothing."""
        found = self.rows.source(source)
        there: NDArray[np.bool_] | None = None
        for name, column in zip(found.variable_names, rows.keys, strict=True):
            if name in found.required and column.null_count:
                there = validity(column) if there is None else there & validity(column)
        return rows if there is None or there.all() else rows.take(np.flatnonzero(there))

    def _entering(
        self, source: str, target: Target, rows: Evaluated, buckets: int, own: Collection[int] | None
    ) -> dict[int, Run]:
        names = self.rows.source(source).variable_names
        mine = list(range(buckets) if own is None else own)
        if not len(rows.diff) or not mine:
            return {}
        column = dict(zip(names, rows.keys, strict=True))
        if target.partition is None:
            run = self._tuples(target.order, column, rows.diff).as_run(self.variables, target.order)
            return dict.fromkeys(mine, run)
        lead = self._lead({name: self.variables.encode(name, column[name]) for name in target.partition}, target)
        codes = np.empty(len(rows.diff), np.int32)
        kernels.buckets_of(lead, buckets, codes)
        if len(mine) < buckets:
            chosen = np.zeros(buckets, bool)
            chosen[mine] = True
            at = np.flatnonzero(chosen[codes])
            rows, codes = rows.take(at), codes[at]
            column = dict(zip(names, rows.keys, strict=True))
        tuples = self._tuples(target.order, column, rows.diff)
        order, starts = np.empty(len(codes), np.int64), np.empty(buckets + 1, np.int64)
        kernels.split_by(codes, buckets, order, starts)
        return {
            bucket: _picked(tuples, order[starts[bucket] : starts[bucket + 1]]).as_run(self.variables, target.order)
            for bucket in mine
            if starts[bucket] < starts[bucket + 1]
        }

    def _tuples(self, order: tuple[str, ...], column: Mapping[str, pa.Array], diff: NDArray[np.int64]) -> Tuples:
        words = self.variables.key(
            {name: self.variables.encode(name, column[name]) for name in order}, order, len(diff)
        )
        return Tuples(order, words, diff, {name: column[name] for name in order if name in self._texts})

    def _lead(self, words: Mapping[str, Words], target: Target) -> NDArray[np.uint64]:
        """The word that decides the bucket: that of the one variable of a partition, or a hash of all of them."""
        assert target.partition is not None
        together = np.concatenate([words[name] for name in target.partition])
        if len(together) == 1:
            return np.ascontiguousarray(together[0])
        lead = np.empty(together.shape[1], np.uint64)
        kernels.fold(together, np.uint64(self.variables.seed), lead)
        return lead

    # -- the stages -----------------------------------------------------------------------------------------------

    def reduce(self, stage: int, bucket: int, state: State, incoming: Incoming) -> Reduced:
        if stage == self.chain.levels:
            return self._answered(state, incoming)
        pending: dict[str, list[Run]] = {part: list(runs) for part, runs in incoming.items()}
        done = Reduced()
        for join in (join for join in self.chain.joins if join.level == stage):
            left, right = (_merged(pending.pop(part, [])) for part in (join.left_part, join.right_part))
            if left is None and right is None:
                continue
            self._keep(join, bucket, left, right, state, done)
            changed = self._live_joins[join.number].changes(left, right, state[join.waiting], state[join.live])
            if changed is None or not changed.rows:
                continue
            if join == self.chain.final:
                done = self._finish(changed, state, done)
            else:
                self._pass_on(join, bucket, changed, pending, done)
        for part, runs in pending.items():  # it is for a later stage, in the same bucket
            if runs:
                done.outgoing.setdefault(bucket, {})[part] = merge(COUNT, runs)
        return done

    @cached_property
    def _live_joins(self) -> tuple[LiveJoin, ...]:
        return tuple(LiveJoin(join, self.variables, self._out(join), self._texts) for join in self.chain.joins)

    def _out(self, join: Join) -> tuple[str, ...]:
        """The variables that go on from a join: those that any of its targets wants."""
        if join == self.chain.final:
            return self.rows.shown
        targets = self.chain.after(join)
        # In the order of the first target, which then need not be rearranged.
        return tuple(dict.fromkeys(name for target in targets for name in target.order))

    def _keep(self, join: Join, bucket: int, left: Run | None, right: Run | None, state: State, done: Reduced) -> None:
        for part, run in ((join.waiting, left), (join.live, right)):
            # What is the same in all buckets is stored by one.
            if run is not None and run.rows and (bucket == 0 or part not in self._shared):
                done.runs[part] = run
                # Rows of the root may be equal, having left their key behind; all others are told apart by theirs.
                repeats = part == join.waiting and join.parent == self.chain.graph.root
                done.live[part] = grown(state[part], run) if repeats else int(run.payload[0].sum())

    def _pass_on(self, join: Join, bucket: int, changed: Tuples, pending: dict[str, list[Run]], done: Reduced) -> None:
        for target in self.chain.after(join):
            run = changed.as_run(self.variables, target.order)
            if not run.rows:
                continue
            if target.level == join.level:
                pending.setdefault(target.part, []).append(run)
            elif join.partition is None:
                done.outgoing.setdefault(bucket, {})[target.part] = run
            else:
                for to, piece in self._split(run, target).items():
                    done.outgoing.setdefault(to, {})[target.part] = piece

    def _split(self, run: Run, target: Target) -> dict[int, Run]:
        at = self.variables.slices(target.order)
        assert target.partition is not None
        lead = self._lead({name: run.words[at[name]] for name in target.partition}, target)
        return split(run, self.buckets, lead)

    def _finish(self, changed: Tuples, state: State, done: Reduced) -> Reduced:
        rows = self.output.evaluate(changed)
        if not len(rows.diff):
            return done
        parts = deltas(self.layout, rows, group_words(self.layout, rows))
        if not self.stays:
            for part, run in parts.items():
                for to, piece in split(run, self.buckets).items():
                    done.outgoing.setdefault(to, {})[part] = piece
            return done
        answer = maintain(self.layout, state, {part: [run] for part, run in parts.items()})
        return replace(answer, runs=done.runs | answer.runs, live=done.live | answer.live, outgoing=done.outgoing)

    def _answered(self, state: State, incoming: Incoming) -> Reduced:
        if not incoming.get(GROUPS):
            return Reduced()
        return maintain(self.layout, state, {part: incoming.get(part, []) for part in self.layout.arrangements})


def _merged(runs: list[Run]) -> Run | None:
    return merge(COUNT, runs) if runs else None


def _picked(tuples: Tuples, at: NDArray[np.int64]) -> Tuples:
    return Tuples(tuples.order, np.take(tuples.words, at, axis=1), tuples.diff[at], take_values(tuples.texts, at))
