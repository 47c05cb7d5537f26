"""Joins of all kinds: a step looks only at the rows that change and at their partners.

The pairs of an inner join are a product, so the change of the join in a step is

    d(L x R) = dL x (R + dR)  +  L x dR

All other kinds depend on whether a row has a partner, that is, whether the number m of its partners is above zero. For
a changed row, m is counted once, after the step. For a row that was there before, m is counted again only if rows that
match it changed; the outputs for the old and the new m then differ by the change of the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import StepFailedError
from headrace.operators.changes import Changes, RowLayout, no_values, null_in, together
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.kernel import State, ViewChange
from headrace.operators.operator import Operator, OperatorLayout, loaded, passed
from headrace.operators.placement import Places
from headrace.plan import native
from headrace.plan.tree import FLAG, Field, Join, JoinKind
from headrace.relation.arrangement import lookup, scan
from headrace.relation.coded import Column, values
from headrace.relation.kernels import Positions, Words
from headrace.relation.residence import Lead
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import COUNT, Group

_PAIRS = 1 << 22  # pairs looked at together in a join without keys


@dataclass(frozen=True)
class JoinLayout(OperatorLayout):
    """How a join keeps its sides: the names of its parts, and the layouts of rows in them.

    Parameters
    ----------
    kept : whether the left and the right side are kept.
    settles : whether a row of the left side that has a partner always has one, and is not kept.
    """

    node: Join
    name: str
    seed: int
    kept: tuple[bool, bool] = (True, True)
    settles: bool = False

    @property
    def left_part(self) -> str:
        return f"{self.name}.left"

    @property
    def right_part(self) -> str:
        return f"{self.name}.right"

    @property
    def parts(self) -> tuple[str, str]:
        return (self.left_part, self.right_part)

    def absent_part(self, side: int) -> str:
        """The part of rows whose key is NULL: they have no partner, so they pass through and are not kept."""
        return f"{self.parts[side]}.absent"

    @cached_property
    def rows(self) -> tuple[RowLayout, RowLayout]:
        """The layouts of both sides."""
        node = self.node
        left, right = (RowLayout(port.fields, node.keys, node.safe, self.seed) for port in node.ports)
        return left, right

    def absent_rows(self, side: int) -> RowLayout:
        """The layout of rows whose key may be NULL."""
        fields = tuple(Field(f.name, f.type, True) for f in self.node.ports[side].fields)
        return RowLayout(fields, 0, (), self.seed)

    def passes_absent(self, side: int) -> bool:
        """Whether the join gives the rows of a side whose key is NULL, rather than leaving them out."""
        kind = self.node.kind
        return kind is JoinKind.FULL or (side == 0 and kind.keeps_left)

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {part: COUNT for part, kept in zip(self.parts, self.kept, strict=True) if kept}

    @property
    def accepts(self) -> Sequence[str]:
        return (*self.parts, self.absent_part(0), self.absent_part(1))

    def shared(self, everywhere: Places) -> Collection[str]:
        return [self.parts[side] for side in everywhere]

    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        rows = self.rows[side]
        unsafe = [name for name, safe in zip(rows.names, self.node.safe, strict=False) if not safe]
        missing = null_in([changes.columns[name] for name in unsafe])
        if missing is not None:
            absent = changes.take(np.flatnonzero(missing))
            changes = changes.take(np.flatnonzero(~missing))
            if self.passes_absent(side):  # and then this side is not in every bucket: each row is given once
                yield from to.deliver(self.absent_rows(side), self.absent_part(side), absent)
        yield from to.deliver(rows, self.parts[side], changes)

    def decides(self, part: str, places: Places) -> Lead:
        side = self.side_of(part)
        return partial((self.rows[side] if part in self.parts else self.absent_rows(side)).lead, places)

    def searched_by(self, part: str, places: Places) -> bool:
        return all(place < self.node.keys for place in places)

    def side_of(self, part: str) -> int:
        return self.parts.index(part.removesuffix(".absent"))

    def operator(self, state: State) -> Operator:
        return JoinOperator(self, state)

    @cached_property
    def output_keys(self) -> Sequence[str]:
        """The key columns of the output, which tell updates from inserts and deletes."""
        keys = {*self.rows[0].names[: self.node.keys], *self.rows[1].names[: self.node.keys]}
        return tuple(name for name in self.node.outputs if name in keys)


@dataclass(frozen=True)
class _Asked:
    """Rows of one side: entries of a run, their multiplicities, and whether each had and has a partner."""

    rows: Run
    at: Positions
    diff: NDArray[np.int64]
    had: NDArray[np.bool_] | None  # None for rows that were not there before the step
    has: NDArray[np.bool_]


class JoinOperator(Operator):
    """A join in one bucket in one step."""

    def __init__(self, layout: JoinLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout
        self.node = layout.node

    def flush(self) -> Changes | None:
        changed = [self.pushed(part) for part in self.layout.parts]
        self.taken = [passed(run, rows.key_width) for run, rows in zip(changed, self.layout.rows, strict=True)]
        asked = [] if self.node.kind is JoinKind.INNER else list(self._asked(0, *changed))
        kept = [_waiting(asked), self._new_keys(changed[1])] if self.layout.settles else changed
        for part, change in zip(self.layout.parts, kept, strict=True):
            self.keep(part, change)
        out: list[Changes] = []
        if self.node.kind.pairs:
            out += self._pairs(*changed)
        out += [self._shown(rows) for rows in asked]
        if self.node.kind is JoinKind.FULL:
            out += [self._alone(1, asked) for asked in self._asked(1, *changed)]
        for side in (0, 1):
            out += self._passing(side)
        return together(out)

    def absorb(self) -> None:
        if self.layout.settles:
            super().absorb()
            return
        for part in self.layout.parts:
            self.keep(part, self.pushed(part))

    # -- pairs ----------------------------------------------------------------------------------------------------

    def _pairs(self, left: Run | None, right: Run | None) -> Iterator[Changes]:
        before = [self.before(part) for part in self.layout.parts]
        if left is not None:
            for others in (before[1], [] if right is None else [right]):
                for mine, other, at in self._matches(left, 0, others):
                    yield self._paired(left, mine, other, at)
        if right is not None:
            for mine, other, at in self._matches(right, 1, before[0]):
                yield self._paired(other, at, right, mine)

    def _paired(self, left: Run, left_at: Positions, right: Run, right_at: Positions) -> Changes:
        diff = left.payload[0][left_at].astype(np.int64) * right.payload[0][right_at].astype(np.int64)
        columns: dict[str, Column] = {}
        for name in self.node.outputs:
            of_left = name.startswith("l")
            layout = self.layout.rows[0 if of_left else 1]
            columns[name] = layout.column(name, left if of_left else right, left_at if of_left else right_at)
        return Changes(columns, diff)

    def _matches(self, mine: Run, side: int, others: Sequence[AnyRun]) -> Iterator[tuple[Positions, Run, Positions]]:
        """Pairs of matching entries: positions in `mine`, a run with their partners, and positions in that run."""
        for owners, run, at in self._same_key(mine, side, others):
            if self.node.residual is not None and len(owners):
                keep = self._agree(mine, owners, side, run, at)
                owners, at = owners[keep], at[keep]
            if len(owners):
                yield owners, run, at

    def _same_key(self, mine: Run, side: int, others: Sequence[AnyRun]) -> Iterator[tuple[Positions, Run, Positions]]:
        if self.node.keys:
            stored = as_set(others)
            found = stored.entries(self.layout.rows[side].probes(mine))
            if len(found):
                yield (found.owners, *loaded(stored, found))
            return
        for other in others:
            if other.rows:
                everything = other if isinstance(other, Run) else other.take(np.arange(other.rows))
                step = max(1, _PAIRS // everything.rows)
                for start in range(0, mine.rows, step):
                    rows = np.arange(start, min(mine.rows, start + step))
                    yield np.repeat(rows, everything.rows), everything, np.tile(np.arange(everything.rows), len(rows))

    def _agree(self, mine: Run, owners: Positions, side: int, run: Run, at: Positions) -> Positions:
        """The pairs for which the residual condition is true."""
        residual = self.node.residual
        assert residual is not None
        own, other = self.layout.rows[side], self.layout.rows[1 - side]
        columns = {
            name: values(own.column(name, mine, owners) if name in own.names else other.column(name, run, at))
            for name in residual.columns
        }
        mask: pa.Array = native.evaluate(residual, columns, len(owners))
        return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))

    # -- partners -------------------------------------------------------------------------------------------------

    def _asked(self, side: int, left: Run | None, right: Run | None) -> Iterator[_Asked]:
        """Rows of a side that change, or whose partners change, with whether they have a partner."""
        own, other = (left, right) if side == 0 else (right, left)
        theirs = self.before(self.layout.parts[1 - side])
        if own is not None:
            count = self._partners(own, side, theirs if other is None else as_set(theirs).with_run(other))
            self._check_single(count)
            yield _Asked(own, np.arange(own.rows), own.payload[0].astype(np.int64), None, count > 0)
        if other is not None:
            touched = self._touched(side, other)
            if touched is not None:
                yield from self._asked_again(side, touched, other, theirs)

    def _touched(self, side: int, other: Run) -> Run | None:
        """Rows from before the step whose key occurs in the changes of the other side."""
        before = self.before(self.layout.parts[side])
        if self.node.keys:
            merged = as_set(before).matching(COUNT, distinct(self.layout.rows[1 - side].probes(other)))
        else:
            merged = scan(COUNT, before)
        return merged if merged is not None and merged.rows else None

    def _asked_again(self, side: int, touched: Run, other: Run, theirs: Sequence[AnyRun]) -> Iterator[_Asked]:
        change = self._partners(touched, side, [other])
        at = np.flatnonzero(change)
        if not len(at):
            return
        rows = touched.take(at)
        before = self._partners(rows, side, theirs)
        after = before + change[at]
        self._check_single(after)
        turned = np.flatnonzero((before > 0) != (after > 0))
        if len(turned):
            diff = rows.payload[0][turned].astype(np.int64)
            yield _Asked(rows, turned, diff, before[turned] > 0, after[turned] > 0)

    def _partners(self, rows: Run, side: int, others: Sequence[AnyRun]) -> NDArray[np.int64]:
        """The number of partners of each entry."""
        if self._has_only_keys(1 - side):  # one entry per key: its count is the number of partners
            return lookup(COUNT, others, self.layout.rows[side].probes(rows))[0].astype(np.int64)
        total = np.zeros(rows.rows, np.int64)
        for owners, matched, at in self._matches(rows, side, others):
            (more,) = COUNT.sum_by((matched.payload[0][at],), owners, rows.rows)
            total += more.astype(np.int64)
        return total

    def _has_only_keys(self, side: int) -> bool:
        """Whether the rows of a side consist of key fields only, so that each key is one entry."""
        node = self.node
        return node.keys > 0 and node.residual is None and len(self.layout.rows[side].fields) == node.keys

    def _new_keys(self, right: Run | None) -> Run | None:
        """The change to keep of a right side that only grows: of rows that are only keys, the new ones, once each."""
        if right is None or not self._has_only_keys(1):
            return right
        (there,) = lookup(COUNT, self.before(self.layout.right_part), right.words)
        new = np.flatnonzero(there == 0)
        if not len(new):
            return None
        return Run(np.ascontiguousarray(right.words[:, new]), (np.ones(len(new), np.int64),))

    def _check_single(self, count: NDArray[np.int64]) -> None:
        if self.node.kind is JoinKind.SINGLE and (count > 1).any():
            raise more_than_one(self.node.text)

    # -- what is given --------------------------------------------------------------------------------------------

    def _shown(self, asked: _Asked) -> Changes:
        """Rows of the left side as this kind of join gives them."""
        kind = self.node.kind
        if kind is JoinKind.FLAG:
            return self._flagged(asked)
        if kind is JoinKind.SEMI:
            return self._of_side(0, asked, _given(asked, wanted=True))
        return self._of_side(0, asked, _given(asked, wanted=False))

    def _alone(self, side: int, asked: _Asked) -> Changes:
        return self._of_side(side, asked, _given(asked, wanted=False))

    def _of_side(self, side: int, asked: _Asked, times: NDArray[np.int64]) -> Changes:
        keep = np.flatnonzero(times)
        at, layout = asked.at[keep], self.layout.rows[side]
        return self._padded(layout, asked.rows, at, times[keep])

    def _padded(self, layout: RowLayout, rows: Run, at: Positions, diff: NDArray[np.int64]) -> Changes:
        """Rows of one side, with NULL for the columns of the other."""
        columns: dict[str, Column] = {}
        for field in self.node.fields:
            own = field.name in layout.names
            columns[field.name] = layout.column(field.name, rows, at) if own else no_values(field.type, len(at))
        return Changes(columns, diff)

    def _flagged(self, asked: _Asked) -> Changes:
        layout, sides = self.layout.rows[0], [(asked.has, asked.diff)]
        if asked.had is not None:
            sides.insert(0, (asked.had, -asked.diff))
        parts = []
        for flag, diff in sides:
            columns = {n: layout.column(n, asked.rows, asked.at) for n in self.node.outputs if n != FLAG}
            parts.append(Changes(columns | {FLAG: pa.array(flag)}, diff))
        return together(parts) or parts[0]

    def _passing(self, side: int) -> Iterator[Changes]:
        """Changed rows whose key is NULL, as the join gives them: they never have a partner."""
        run = self.pushed(self.layout.absent_part(side))
        if run is None:
            return
        layout = self.layout.absent_rows(side)
        self.taken[side] += ViewChange(*_counted(run))
        everything, diff = np.arange(run.rows), run.payload[0].astype(np.int64)
        if self.node.kind is JoinKind.FLAG:
            columns = {n: layout.column(n, run) for n in self.node.outputs if n != FLAG}
            yield Changes(columns | {FLAG: pa.array(np.zeros(run.rows, bool))}, diff)
        else:
            yield self._padded(layout, run, everything, diff)


def more_than_one(text: str) -> StepFailedError:
    """The error for a scalar subquery with several rows, which Spark refuses too."""
    return StepFailedError(
        f"a scalar subquery gives more than one row ({text or 'uncorrelated'}), so it has no value",
        way_out="aggregate it, as in (SELECT max(x) ...), or make its rows unique; nothing of this step was applied",
    )


def _waiting(asked: Sequence[_Asked]) -> Run | None:
    """The change of the kept rows, where only rows without a partner are kept."""
    changes = []
    for rows in asked:
        if rows.had is None:
            changes.append(rows.rows.take(rows.at[~rows.has]))
        else:  # it has waited for a partner until now
            found = rows.rows.take(rows.at)
            changes.append(Run(found.words, COUNT.negate(found.payload), found.values))
    merged = merge(COUNT, changes) if changes else None
    return merged if merged is not None and merged.rows else None


def _given(asked: _Asked, *, wanted: bool) -> NDArray[np.int64]:
    """The change in how often each row is given, where a join gives the rows with (`wanted`) or without a partner."""
    now = (asked.has == wanted).astype(np.int64)
    if asked.had is not None:
        now -= asked.had == wanted
    times: NDArray[np.int64] = asked.diff * now
    return times


def _counted(run: Run) -> tuple[int, int]:
    diff = run.payload[0]
    return int(diff[diff > 0].sum()), int(-diff[diff < 0].sum())


def distinct(probes: Words) -> Words:
    """Sorted keys, each once."""
    if probes.shape[1] < 2:
        return probes
    new = np.ones(probes.shape[1], bool)
    new[1:] = (probes[:, 1:] != probes[:, :-1]).any(axis=0)
    return np.ascontiguousarray(probes[:, new])
