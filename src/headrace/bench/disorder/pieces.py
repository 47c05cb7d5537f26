"""Rows that arrived in several pieces, put together or in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.window.arrivals import Arrivals
from headrace.window.spec import Times


def concatenated(pieces: Sequence[Arrivals]) -> Arrivals:
    """Return the rows of all pieces, one piece after the other."""
    if len(pieces) == 1:
        return pieces[0]
    return Arrivals(
        np.concatenate([piece.side for piece in pieces]),
        np.concatenate([piece.key for piece in pieces], axis=1),
        np.concatenate([piece.value for piece in pieces]),
        np.concatenate([piece.event for piece in pieces]),
        np.concatenate([piece.arrival for piece in pieces]),
    )


def by_event(pieces: Sequence[Arrivals]) -> Arrivals:
    """Return the rows of all pieces in the order of their event times."""
    rows = concatenated(pieces)
    return rows.take(np.argsort(rows.event, kind="stable"))


def heads(ordered: Times) -> Times:
    """Return the positions at which a new number begins, in numbers that are in order."""
    return np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
