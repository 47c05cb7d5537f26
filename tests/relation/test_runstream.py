"""Writing a run piece by piece gives the very bytes that writing it at once gives."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.relation.test_runfile import a_run

from headrace.relation import runfile
from headrace.relation.keys import ordered_string_words
from headrace.relation.run import Run, at_width, merge
from headrace.relation.runstream import RunStream
from headrace.rings import COUNT


def streamed(run: Run, cuts: list[int], path: Path, buckets: np.ndarray | None = None) -> bytes:
    """The file of a run that came in pieces."""
    edges = [0, *cuts, run.rows]
    with RunStream(path.parent, run.words.shape[0], with_buckets=buckets is not None) as stream:
        for start, stop in pairwise(edges):
            stream.add(run.slice(start, stop), None if buckets is None else buckets[start:stop])
        assert stream.write(path) == (path.stat().st_size, runfile.crc_of(path.read_bytes()))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return path.read_bytes()


@pytest.mark.parametrize("nulls", ["none", "some", "all"])
@pytest.mark.parametrize("rows", [0, 1, 7, 511, 512, 513, 2000])
def test_pieces_give_the_bytes_of_the_whole(rows: int, nulls: str, tmp_path: Path) -> None:
    run = a_run(rows, nulls=nulls, seed=rows)
    cuts = sorted(np.random.default_rng(rows).integers(0, rows + 1, 5).tolist())
    assert streamed(run, cuts, tmp_path / "a.run") == bytes(runfile.encode(run))


def test_pieces_have_the_buckets_of_their_entries(tmp_path: Path) -> None:
    run = a_run(1500)
    buckets = np.random.default_rng(1).integers(0, 4, 1500, dtype=np.int32)
    assert streamed(run, [3, 700], tmp_path / "a.run", buckets) == bytes(runfile.encode(run, buckets))


def test_nulls_that_begin_in_a_later_piece(tmp_path: Path) -> None:
    column = pa.array([1] * 100 + [None, 3], pa.int64())
    run = Run(np.arange(102, dtype=np.uint64)[None, :], (np.ones(102, np.int64),), {"v": column})
    assert streamed(run, [50], tmp_path / "a.run") == bytes(runfile.encode(run))


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(b"mine")
    with RunStream(tmp_path, 1) as stream:
        stream.add(Run(np.arange(3, dtype=np.uint64)[None, :], (np.ones(3, np.int64),)))
        with pytest.raises(FileExistsError):
            stream.write(path)
    assert path.read_bytes() == b"mine"


def test_a_key_keeps_its_place_at_another_width() -> None:
    texts = sorted(["", "a", "a" * 8, "a" * 9, "b" * 30, "c", "a" * 8 + "\0", "ab", "zz" * 20])
    alone = {text: ordered_string_words(pa.array([text], pa.large_string())) for text in texts}
    for width in {words.shape[0] for words in alone.values()}:
        fitting = [text for text in texts if alone[text].shape[0] <= width]
        run = merge(COUNT, [Run(alone[text], (np.ones(1, np.int64),)) for text in fitting])
        for text in texts:
            edge = tuple(at_width(alone[text], width)[:, 0])
            assert sum(tuple(key) <= edge for key in run.words.T) == sum(other <= text for other in fitting)
