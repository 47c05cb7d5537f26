"""How a run went while its stream went by: throughput and state over the share of the stream."""

from __future__ import annotations

from collections.abc import Sequence


def progress(
    rows: Sequence[int], seconds: Sequence[float], total: int, parts: int, state: Sequence[int] = ()
) -> list[dict[str, float]]:
    """Sum the batches of a run into parts of the stream, each with the throughput of its own batches.

    A run that was ended early has fewer parts. A part has a batch at least, so large batches make fewer parts.

    Parameters
    ----------
    rows : of each batch that was done.
    seconds : of each of these batches.
    total : rows of the whole stream.
    parts : how many the whole stream has.
    state : bytes that were kept after each batch, if that is to be reported.

    >>> progress([10, 10, 10], [1.0, 2.0, 2.0], 40, 2)
    [{'share': 0.5, 'rows_per_s': 6.666666666666667}, {'share': 0.75, 'rows_per_s': 5.0}]
    """
    found: list[dict[str, float]] = []
    done = own_rows = 0
    own_seconds = 0.0
    for number, (batch, taken) in enumerate(zip(rows, seconds, strict=True)):
        done, own_rows, own_seconds = done + batch, own_rows + batch, own_seconds + taken
        last = number + 1 == len(rows)
        if last or done * parts >= total * (int((done - batch) * parts / total) + 1):
            point = {"share": done / total, "rows_per_s": own_rows / own_seconds}
            if state:
                point["state_mb"] = state[number] / 1e6
            found.append(point)
            own_rows, own_seconds = 0, 0.0
    return found
