"""The kernel of an aggregate view: (state of a bucket, changes) -> (new runs, changed groups for readers).

It is a pure function over runs, so the inline executor, a Spark task and a test call the very same code. Sums are
never read to be updated: a change is a run of its own. The state is looked up only to report the old values of the
touched groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.operators.asked import PERCENTILES, POWERS, SQUARED, plain
from headrace.operators.distinct import changed_values, with_distinct
from headrace.operators.finish import finish, group_columns, value_of
from headrace.operators.frequency import moved_values
from headrace.operators.kernel import Reduced, State, ViewChange
from headrace.operators.layout import GROUPS, Component, ViewLayout, ordered
from headrace.operators.looked_up import as_sets, look_up, nothing
from headrace.operators.place import with_places
from headrace.plan.view import Shape
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup, pieces, scan
from headrace.relation.columns import whole
from headrace.relation.run import Run, merge, take_values
from headrace.relation.runset import AnyRun
from headrace.rings import COUNT, Payload, take


def maintain(layout: ViewLayout, state: State, incoming: Mapping[str, Sequence[Run]]) -> Reduced:
    """Add changes to one bucket of a view."""
    touched = merge(layout.ring, list(incoming[GROUPS]), keep_zeros=True)
    values = changed_values(layout, state, incoming)
    touched = with_distinct(layout, touched, values)
    earlier = as_sets(state)
    before = lookup(layout.ring, state[GROUPS], touched.words)
    moved = {name: changed.delta for name, changed in values.items()}
    live = {name: changed.growth for name, changed in values.items()}
    for name, argument in layout.frequencies.items():
        if ordered(argument) in values:
            moved[name] = moved_values(layout, values[ordered(argument)])
            live[name] = int(moved[name].payload[0].sum())
    later = {name: runs.with_run(moved[name]) if name in moved else runs for name, runs in earlier.items()}
    touched = with_places(layout, touched, before, values, later)
    after = layout.ring.add(before, touched.payload)
    was, now = alive(before), alive(after)
    touched, after = _without_residue(layout, touched, before, after, was & ~now)
    runs = {GROUPS: touched.take(~layout.ring.is_zero(touched.payload)), **moved}
    live[GROUPS] = int(now.sum()) - int(was.sum())
    old = look_up(layout, earlier, touched.words, before)
    new = look_up(layout, later, touched.words, after)
    changed = was != now
    for name, array in old.items():
        changed |= _differ(array, new[name])
    changed |= was & now & ~_same_sums(layout, before, after)
    summary = _counted(layout, before, after, changed)
    if not changed.any():
        return Reduced(runs, live, summary=summary, groups=touched.rows)
    at = np.flatnonzero(changed)
    shown = take_values(touched.values, at)
    shown |= {f"old_{name}": array for name, array in take_values(old, at).items()}
    shown |= {f"new_{name}": array for name, array in take_values(new, at).items()}
    changes = Run(np.ascontiguousarray(touched.words[:, at]), take(before, at) + take(after, at), shown)
    return Reduced(runs, live, changes=changes, summary=summary, groups=touched.rows)


def _counted(layout: ViewLayout, before: Payload, after: Payload, changed: NDArray[np.bool_]) -> ViewChange:
    """Count the groups that came, went and changed."""
    if layout.plan.shape is Shape.ROWS:  # a bag: every copy of a row counts
        copies = after[0].astype(np.int64) - before[0].astype(np.int64)
        return ViewChange(int(copies[copies > 0].sum()), int(-copies[copies < 0].sum()), 0)
    if layout.plan.shape is Shape.TOTAL:  # its one row is always there
        return ViewChange(updated=int(changed.any()))
    was, now = alive(before), alive(after)
    return ViewChange(int((now & ~was).sum()), int((was & ~now).sum()), int((changed & was & now).sum()))


def net_change(layout: ViewLayout, changes: Sequence[AnyRun]) -> ViewChange:
    """Count what changes of an answer that followed each other come to: a group that came and went is none."""
    words = np.concatenate([run.words for run in changes], axis=1)
    rows, width = words.shape[1], len(layout.ring.dtypes)
    group_of, first = np.empty(rows, np.int64), np.empty(rows, np.int64)
    groups = kernels.group_hashed(words, group_of, first)
    last = np.empty(groups, np.int64)
    last[group_of] = np.arange(rows)  # of several changes of a group, the last assignment stays
    columns = [np.concatenate([run.payload[i] for run in changes]) for i in range(2 * width)]
    before, after = take(tuple(columns[:width]), first[:groups]), take(tuple(columns[width:]), last)
    changed = (alive(before) != alive(after)) | ~_same_sums(layout, before, after)
    for name in layout.looked_up:
        old, new = (
            pa.concat_arrays([whole(run.values[f"{side}_{name}"]) for run in changes]) for side in ("old", "new")
        )
        changed |= _differ(old.take(pa.array(first[:groups])), new.take(pa.array(last)))
    return _counted(layout, before, after, changed)


def _without_residue(
    layout: ViewLayout, touched: Run, before: Payload, after: Payload, gone: NDArray[np.bool_]
) -> tuple[Run, Payload]:
    """Remove vanishing groups exactly, so that no rounding residue of their sums is left when they return."""
    if layout.ring.exact or not gone.any():
        return touched, after
    change = layout.ring.negate(before)
    nothing = layout.ring.zeros(touched.rows)
    payload, cleared = _where(gone, change, touched.payload), _where(gone, nothing, after)
    return Run(touched.words, payload, touched.values), cleared


def _where(mask: NDArray[np.bool_], true: Payload, false: Payload) -> Payload:
    """Elements of one payload where a mask holds, of another elsewhere; columns may have several numbers an element."""
    return tuple(np.where(mask if a.ndim == 1 else mask[:, None], a, b) for a, b in zip(true, false, strict=True))


def read(layout: ViewLayout, state: State) -> pa.Table:
    """Read one bucket of a view as the columns k0.. and a0.. of its groups."""
    run = scan(layout.ring, state[GROUPS])
    if run is None:
        run = Run(
            layout.keys.encode_empty(0), layout.ring.zeros(0), {f"k{i}": _no_strings() for i in layout.keys.stored}
        )
    return _read_groups(layout, state, run)


def read_pieces(layout: ViewLayout, state: State, rows: int) -> Iterator[pa.Table]:
    """Read one bucket of a view piece by piece, about `rows` groups at a time."""
    for run in pieces(layout.ring, state[GROUPS], rows):
        yield _read_groups(layout, state, run)


def _read_groups(layout: ViewLayout, state: State, run: Run) -> pa.Table:
    run = run.take(alive(run.payload))
    found = look_up(layout, as_sets(state), run.words, run.payload)
    return finish(layout, group_columns(layout, run), run.payload, found)


def read_changes(layout: ViewLayout, changes: Run) -> tuple[pa.Table, pa.Table]:
    """Read the groups that a step changed: those that existed before it, and those that exist after it."""
    width = len(layout.ring.dtypes)
    sides = []
    for side, payload in (("old", changes.payload[:width]), ("new", changes.payload[width:])):
        there = np.flatnonzero(alive(payload))
        values = take_values(changes.values, there)
        run = Run(np.ascontiguousarray(changes.words[:, there]), take(payload, there), values)
        found = {name: values[f"{side}_{name}"] for name in layout.looked_up}
        sides.append(finish(layout, group_columns(layout, run), run.payload, found))
    return sides[0], sides[1]


def changed_rows(layout: ViewLayout, changes: Run) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read the groups that a step changed as rows with multiplicities (positive: inserted, negative: deleted).

    The columns are k0.. and a0.. (`__rows` where a view has neither). A changed group gives its old row with -1
    and its new row with +1. A row of a bag (`Shape.ROWS`) has the difference of its counts after and before the step.
    The one row of a total always exists: while its table is empty, it is the row of `empty_total`.
    """
    if layout.plan.shape is Shape.ROWS:
        width = len(layout.ring.dtypes)
        before, after = changes.payload[:width], changes.payload[width:]
        diff = after[0].astype(np.int64) - before[0].astype(np.int64)
        return _shown(finish(layout, group_columns(layout, changes), after, {})), diff
    old, new = read_changes(layout, changes)
    if layout.plan.shape is Shape.TOTAL:
        old, new = (side if side.num_rows else empty_total(layout) for side in (old, new))
    diff = np.repeat(np.array([-1, 1], np.int64), [old.num_rows, new.num_rows])
    return _shown(pa.concat_tables([old, new])), diff


def _shown(groups: pa.Table) -> pa.Table:
    return groups if groups.num_columns == 1 else groups.drop_columns(["__rows"])


def empty_total(layout: ViewLayout) -> pa.Table:
    """The one row of a view without GROUP BY over no rows: counts are 0, everything else is NULL."""
    return finish(layout, [], layout.ring.zeros(1), nothing(layout, 1))


def _same_sums(layout: ViewLayout, before: Payload, after: Payload) -> NDArray[np.bool_]:
    """Tell which groups have the same values in every component that the view shows."""
    same = np.ones(len(before[0]), bool)
    sides = layout.ring.split(before), layout.ring.split(after)
    for one in layout.plan.aggregates:
        if plain(one.function) in PERCENTILES:  # a place moves far more often than the value at it changes
            same &= ~_differ(*(value_of(layout, one, side) for side in sides))
    for part, old, new in zip(layout.components, *sides, strict=True):
        if part.role == "place":
            continue
        if part.ring == COUNT and not _count_shown(layout, part):
            same &= (old[0] > 0) == (new[0] > 0)  # this count only decides whether a sum is NULL
            continue
        for a, b in zip(old, new, strict=True):
            equal = a == b
            # A ring of the user may have columns of several numbers an element.
            same &= equal if equal.ndim == 1 else equal.all(axis=1)
    return same


def _count_shown(layout: ViewLayout, part: Component) -> bool:
    """Whether some aggregate shows this count of rows or of values; a sum of integers is no count."""
    counted = {"count", "avg", *POWERS}
    if part.role == "rows":  # it stands for the count of every argument that is never NULL
        return layout.plan.shape is Shape.ROWS or any(
            a.function in counted | SQUARED.keys()
            and (a.argument is None or layout.component("present", a.argument) is None)
            for a in layout.plan.aggregates
        )
    assert part.argument is not None
    if part.role == "complete":
        return False
    if part.role == "present":
        related = (a for a in layout.plan.aggregates if a.function in SQUARED)
        return bool(layout.functions(part.argument) & counted) or part.argument in {a.argument for a in related}
    if part.role == "distinct":
        return bool(part.others) or bool(layout.functions(part.argument) & {f"{name}_distinct" for name in counted})
    return True


def _differ(old: pa.Array, new: pa.Array) -> NDArray[np.bool_]:
    unequal = pc.not_equal(old, new)
    if pa.types.is_floating(old.type):  # NaN is one value, as in Spark
        unequal = pc.and_kleene(unequal, pc.invert(pc.and_kleene(pc.is_nan(old), pc.is_nan(new))))
    differ = pc.or_kleene(unequal, pc.xor(pc.is_valid(old), pc.is_valid(new)))
    return np.asarray(pc.fill_null(differ, False).to_numpy(zero_copy_only=False), dtype=bool)


def _no_strings() -> pa.Array:
    return pa.array([], pa.large_string())
