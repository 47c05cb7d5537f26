import numpy as np
import pytest

from headrace.relation.arrangement import pieces, scan
from headrace.relation.run import Run, consolidate
from headrace.rings import Integer

COUNT = Integer(1)


def _run(random: np.random.Generator, entries: int) -> Run:
    words = random.integers(0, 50, (2, entries)).astype(np.uint64)
    return consolidate(COUNT, words, (random.integers(-1, 2, entries),), {})


@pytest.mark.parametrize("rows", [1, 3, 64, 10_000])
def test_pieces_add_up_to_the_whole_in_order(rows: int) -> None:
    random = np.random.default_rng(rows)
    for sizes in ([], [0], [700], [400, 90, 90, 3], [5, 5, 5]):
        runs = [_run(random, size) for size in sizes]
        found = list(pieces(COUNT, runs, rows))
        words = np.concatenate([np.zeros((2, 0), np.uint64), *(piece.words for piece in found)], axis=1)
        counts = np.concatenate([np.zeros(0, np.int64), *(piece.payload[0] for piece in found)])
        whole = scan(COUNT, runs) if runs else None
        assert np.array_equal(words, whole.words if whole else np.zeros((2, 0), np.uint64))
        assert np.array_equal(counts, whole.payload[0] if whole else np.zeros(0))


def test_a_piece_reads_about_as_much_as_it_was_asked_to() -> None:
    random = np.random.default_rng(1)
    runs = [
        consolidate(COUNT, random.integers(0, 2**60, (1, n)).astype(np.uint64), (np.ones(n, np.int64),), {})
        for n in (9_000, 3_000)
    ]
    largest = max(piece.rows for piece in pieces(COUNT, runs, 500))
    assert largest < 1_000
