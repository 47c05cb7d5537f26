"""How many rows an operator takes and gives in one flush, as inserts, updates and deletes.

These are formulas for the operators as they are built here, compiled because a search for paces evaluates them hundreds
of thousands of times. A flow is (inserted, updated, deleted); an update is a deleted and an inserted row with one key.

Progress of an input is the share of a trigger's rows that the operator has taken. Two inputs of a join may have come in
the same order (orders with their lineitems: each row finds its partners at once), or in no order that has to do with
each other (orders and customers). `kappa` says how much of the first is true; it is learnt (`observed`). The same goes
for the rows of a group: they come together, or spread over the whole trigger.
"""

from __future__ import annotations

from typing import Any, Final

import numba as nb
import numpy as np
from numpy.typing import NDArray

_jit: Any = nb.njit(cache=True, nogil=True)
Numbers = NDArray[np.float64]

# Kinds of operators.
INNER, LEFT, SEMI, ANTI, FLAG, FULL, GROUP, TOP = range(8)
PARAMETERS: Final = 12
# Parameters of a join.
LEFT_BASE, RIGHT_BASE = 0, 1  # rows of the sides when the trigger's data begins
LEFT_ROWS, RIGHT_ROWS = 2, 3  # rows that come to the sides until the trigger, inserted or deleted
PAIRS = 4  # pairs that these rows make
KAPPA = 5  # how much both sides come in the same order
MATCHED = 6  # share of the left rows that have a partner in the end
PARTNERS = 7  # partners of a row that has one, on average
LEFT_CHURN, RIGHT_CHURN = 8, 10  # updates given for an update that a side takes
SCALE = 9  # measured rows given, as a ratio to what the formulas say
# Parameters of a group.
GROUPS = 0  # groups that the trigger's rows belong to
ROWS = 1  # rows that come until the trigger
NEW = 2  # groups that are new
GONE = 3  # share of the known groups, of those touched, that vanish
SHOWN = 4  # share of the other groups, of those touched, whose row changes
# A top: rows wanted, rows when the trigger's data begins.
WANTED, TOP_BASE = 0, 1


@_jit
def pairs(p, left, right):  # type: ignore[no-untyped-def]
    """Pairs that have been made when the sides have come so far."""
    a, b, da, db = p[LEFT_BASE], p[RIGHT_BASE], p[LEFT_ROWS], p[RIGHT_ROWS]
    whole = (a + da) * (b + db) - a * b
    if whole <= 0.0:
        return 0.0
    apart = ((a + left * da) * (b + right * db) - a * b) / whole
    together = apart
    if da > 0.0 and db > 0.0:
        together = min(left, right)
    return p[PAIRS] * (p[KAPPA] * together + (1.0 - p[KAPPA]) * apart)


@_jit
def matched(p, left, right):  # type: ignore[no-untyped-def]
    """Share of the left rows that are there which have a partner."""
    b, db = p[RIGHT_BASE], p[RIGHT_ROWS]
    there = (b + right * db) / (b + db) if b + db > 0.0 else 1.0
    apart = 1.0 - (1.0 - min(1.0, there)) ** max(1.0, p[PARTNERS])
    together = apart if left <= 0.0 or db <= 0.0 else min(1.0, right / left)
    return p[MATCHED] * (p[KAPPA] * together + (1.0 - p[KAPPA]) * apart)


@_jit
def join_flow(kind, p, cumulated, taken, out):  # type: ignore[no-untyped-def]
    """The flow that a join gives for the flows that its sides take.

    `cumulated` has the rows that the sides have taken before, and is brought up to date.
    """
    rows_left, rows_right = taken[0, 0] + taken[0, 2], taken[1, 0] + taken[1, 2]
    la = cumulated[0] / p[LEFT_ROWS] if p[LEFT_ROWS] > 0.0 else 1.0
    ra = cumulated[1] / p[RIGHT_ROWS] if p[RIGHT_ROWS] > 0.0 else 1.0
    cumulated[0] += rows_left
    cumulated[1] += rows_right
    lb = cumulated[0] / p[LEFT_ROWS] if p[LEFT_ROWS] > 0.0 else 1.0
    rb = cumulated[1] / p[RIGHT_ROWS] if p[RIGHT_ROWS] > 0.0 else 1.0
    came = rows_left + rows_right
    gone = (taken[0, 2] + taken[1, 2]) / came if came > 0.0 else 0.0
    inserted, updated, deleted = 0.0, 0.0, 0.0
    if kind in (INNER, LEFT, FULL):
        made = max(0.0, pairs(p, lb, rb) - pairs(p, la, ra))
        inserted += made * (1.0 - gone)
        deleted += made * gone
    if kind != INNER:
        before, after = matched(p, la, ra), matched(p, lb, rb)
        known = p[LEFT_BASE] + la * p[LEFT_ROWS]
        turned = known * abs(after - before)
        if kind == SEMI:
            inserted += taken[0, 0] * after
            deleted += taken[0, 2] * after
            inserted += turned * (1.0 - gone)
            deleted += turned * gone
        elif kind == FLAG:
            inserted += taken[0, 0]
            deleted += taken[0, 2]
            updated += turned
        else:
            inserted += taken[0, 0] * (1.0 - after)
            deleted += taken[0, 2] * (1.0 - after)
            if kind == ANTI:
                deleted += turned * (1.0 - gone)
                inserted += turned * gone
            else:  # the row alone goes, and a pair comes, which has been counted
                exchanged = min(turned, inserted)
                updated += exchanged
                inserted -= exchanged
                deleted += turned - exchanged
    there = (p[RIGHT_BASE] + rb * p[RIGHT_ROWS]) / max(1.0, p[RIGHT_BASE] + p[RIGHT_ROWS])
    here = (p[LEFT_BASE] + lb * p[LEFT_ROWS]) / max(1.0, p[LEFT_BASE] + p[LEFT_ROWS])
    out[0] = inserted * p[SCALE]
    again = p[LEFT_CHURN] * taken[0, 1] * min(1.0, there) + p[RIGHT_CHURN] * taken[1, 1] * min(1.0, here)
    out[1] = updated * p[SCALE] + again
    out[2] = deleted * p[SCALE]


@_jit
def touched_groups(p, rows):  # type: ignore[no-untyped-def]
    """How many groups so many rows belong to."""
    if rows <= 0.0 or p[GROUPS] <= 0.0:
        return 0.0
    share = min(1.0, rows / p[ROWS]) if p[ROWS] > 0.0 else 1.0
    together = p[GROUPS] * share
    apart = rows if p[GROUPS] <= 1.0 else p[GROUPS] * (1.0 - (1.0 - 1.0 / p[GROUPS]) ** rows)
    if p[GROUPS] <= 1.0:
        apart = 1.0
    return min(rows, p[KAPPA] * together + (1.0 - p[KAPPA]) * apart)


@_jit
def known_groups(p, rows):  # type: ignore[no-untyped-def]
    """Share of the new groups that so many rows have brought."""
    share = min(1.0, rows / p[ROWS]) if p[ROWS] > 0.0 else 1.0
    if p[GROUPS] <= 1.0:
        return 1.0 if rows > 0.0 else 0.0
    base = 1.0 - 1.0 / p[GROUPS]
    whole = 1.0 - base ** p[ROWS]
    apart = (1.0 - base ** min(rows, p[ROWS])) / whole if whole > 0.0 else share
    return p[KAPPA] * share + (1.0 - p[KAPPA]) * apart


@_jit
def group_flow(p, before, rows, out):  # type: ignore[no-untyped-def]
    """The flow that an aggregate gives for rows that waited; returns how many groups these touch.

    `before` are the rows that the aggregate has taken earlier.
    """
    touched = touched_groups(p, rows)
    new = min(touched, p[NEW] * (known_groups(p, before + rows) - known_groups(p, before)))
    known = max(0.0, touched - new)
    out[0] = new
    out[2] = known * p[GONE]
    out[1] = (known - out[2]) * p[SHOWN]
    return touched


@_jit
def top_flow(p, before, rows, out):  # type: ignore[no-untyped-def]
    """The flow that the first rows of an order give for rows that waited."""
    there = p[TOP_BASE] + before
    room = max(0.0, p[WANTED] - there)
    filling = min(rows, room)
    rest = rows - filling
    out[0] = filling
    out[1] = min(p[WANTED], rest * p[WANTED] / max(1.0, there + rows)) * p[SCALE]
    out[2] = 0.0
