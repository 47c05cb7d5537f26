"""Products of matrices under random changes: kept = multiplied by NumPy, and a change of low rank stays one."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadRowsError, SchemaError
from headrace.factorized import dense
from headrace.factorized.chain_view import ChainView, chain_of
from headrace.operators.kernel import Evaluated
from headrace.relation.outer import Outer, best_split, entries
from headrace.relation.run import Run

Change = pa.Table | Outer


class Played:
    """A chain with its state in memory, and the same matrices as arrays."""

    def __init__(self, names: str, shapes: list[tuple[int, int]]) -> None:
        self.view: ChainView = chain_of(tuple(names), shapes)
        self.state: dict[str, list[Run]] = {}
        self.arrays = {name: np.zeros(shape) for name, shape in zip(names, shapes, strict=True)}

    def evaluated(self, rows: pa.Table) -> Evaluated:
        columns = {name: rows[name].combine_chunks() for name in ("i", "j", "term", "value")}
        diff = rows["__diff"].to_numpy() if "__diff" in rows.column_names else np.ones(rows.num_rows, np.int64)
        keys = [columns[name] for name in ("i", "j", "term")]
        return Evaluated(keys, [columns["value"]], diff, np.arange(rows.num_rows))

    def step(self, changes: dict[str, tuple[Change, np.ndarray]]) -> int:
        """Apply changes, each with what it adds to the array; returns how many numbers were written."""
        incoming: dict[str, list[Run]] = {}
        for side in self.view.sides:
            if side.table in changes:
                change, added = changes[side.table]
                rows = self.evaluated(change.rows() if isinstance(change, Outer) else change)
                assert self.view.refused(side.source, rows) == {}
                for part, run in self.view.lift(side.source, rows, 4).get(0, {}).items():
                    incoming.setdefault(part, []).append(run)
        for name, (_, added) in changes.items():
            self.arrays[name] = self.arrays[name] + added
        done = self.view.reduce(0, 0, self.state, incoming)
        for part, run in done.runs.items():
            self.state.setdefault(part, []).append(run)
        return sum(run.payload[0].size for run in done.runs.values())

    def check(self) -> None:
        wanted = np.linalg.multi_dot([self.arrays[table] for table in self.view.tables])
        kept = self.view.matrix(self.view.root, self.state)
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(kept.to_numpy(), wanted, rtol=0, atol=1e-10 * scale)
        vector = np.arange(wanted.shape[1], dtype=float)
        np.testing.assert_allclose(kept.after(vector[None, :])[0], wanted @ vector, rtol=0, atol=1e-8 * scale)
        some = np.array([0, wanted.shape[0] - 1])
        np.testing.assert_allclose(kept.at_rows(some), wanted[some], rtol=0, atol=1e-10 * scale)
        for number, table in enumerate(self.view.tables):
            np.testing.assert_allclose(
                self.view.matrix(number, self.state).to_numpy(), self.arrays[table], rtol=0, atol=1e-10
            )


def drawn(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Change, np.ndarray]:
    """A random change: entries here and there, rows, columns, outer products, or what deletes entries."""
    m, n = shape
    kind = rng.integers(5)
    if kind == 0:
        change = hr.outer(rng.integers(-3, 4, m), rng.integers(-3, 4, n))
        for _ in range(rng.integers(3)):
            change = change - 0.5 * hr.outer(rng.integers(-3, 4, m), rng.integers(-3, 4, n))
        return change, change.to_numpy()
    added = np.zeros(shape)
    if kind == 1:
        added[rng.integers(m)] = rng.integers(-5, 6, n)
    elif kind == 2:
        added[:, rng.integers(n)] = rng.integers(-5, 6, m)
    else:
        at = rng.integers(m, size=7), rng.integers(n, size=7)
        added[at] = rng.integers(-5, 6, 7)
    if kind == 4:
        gone = entries(-added)
        return gone.append_column("__diff", pa.array(np.full(gone.num_rows, -1))), added
    return entries(added), added


@pytest.mark.parametrize("seed", range(20))
def test_kept_is_multiplied(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 90, rng.integers(3, 7)).tolist()
    names = "ABCDEF"[: len(sizes) - 1]
    chain = Played(names, list(pairwise(sizes)))
    for _ in range(8):
        changes = {}
        for name in names:
            if rng.random() < 0.6:
                changes[name] = drawn(rng, chain.arrays[name].shape)
        chain.step(changes)
        chain.check()


def test_a_matrix_may_come_twice() -> None:
    rng = np.random.default_rng(5)
    chain = Played("AA", [(70, 70), (70, 70)])
    for _ in range(4):
        chain.step({"A": drawn(rng, (70, 70))})
        chain.check()


def test_one_batch_equals_many() -> None:
    rng = np.random.default_rng(1)
    added = rng.integers(-5, 6, (40, 40)).astype(float)
    other = rng.integers(-5, 6, (40, 40)).astype(float)
    answers = []
    for rows in (40, 7, 1):
        chain = Played("AB", [(40, 40), (40, 40)])
        chain.step({"B": (entries(other), other)})
        for first in range(0, 40, rows):
            part = np.zeros((40, 40))
            part[first : first + rows] = added[first : first + rows]
            chain.step({"A": (entries(part), part)})
        answers.append(chain.view.matrix(chain.view.root, chain.state).to_numpy())
    assert (answers[0] == answers[1]).all()
    assert (answers[0] == answers[2]).all()


@pytest.mark.parametrize("kind", ["outer", "row", "column"])
def test_a_change_of_rank_1_writes_vectors_and_no_matrix(kind: str) -> None:
    """Example 42: numbers that are written grow like the sides of the matrices, and not like their areas."""
    written = []
    for p in (64, 128, 256):
        rng = np.random.default_rng(p)
        chain = Played("ABCD", [(p, p)] * 4)
        for name in "ABCD":
            full = rng.normal(size=(p, p))
            chain.step({name: (entries(full), full)})
        u, v = np.zeros(p), np.zeros(p)
        u[:] = rng.normal(size=p) if kind != "row" else 0.0
        v[:] = rng.normal(size=p) if kind != "column" else 0.0
        if kind == "row":
            u[3], v = 1.0, rng.normal(size=p)
        if kind == "column":
            v[3] = 1.0
        change = hr.outer(u, v)
        given: Change = change if kind == "outer" else entries(change.to_numpy())
        written.append(chain.step({"B": (given, change.to_numpy())}))
        chain.check()
    assert written[2] < 5 * written[0]
    assert written[2] <= 3 * 2 * (256 + 1)  # B, (A B) and the product: two vectors each


def test_example_42() -> None:
    assert [node.name for node in chain_of("ABCD", [(8, 8)] * 4).nodes[4:]] == ["(A B)", "(C D)", "((A B) (C D))"]


def test_the_order_is_the_textbook_one() -> None:
    """The example of the textbook that the paper cites (Section 8.4): 15,125 multiplications."""
    sizes = [30, 35, 15, 5, 10, 20, 25]
    shapes = list(pairwise(sizes))
    assert best_split(shapes)[0] == 15_125
    assert chain_of("ABCDEF", shapes).nodes[-1].name == "((A (B C)) ((D E) F))"


@pytest.mark.parametrize("seed", range(10))
def test_no_order_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 50) for _ in range(rng.randint(3, 7))]

    def cheapest(a: int, b: int) -> int:
        if b - a == 1:
            return 0
        return min(cheapest(a, s) + cheapest(s, b) + sizes[a] * sizes[s] * sizes[b] for s in range(a + 1, b))

    assert best_split(list(pairwise(sizes)))[0] == cheapest(0, len(sizes) - 1)


def test_factors_become_rows_when_there_are_many() -> None:
    p = 96
    rng = np.random.default_rng(2)
    chain = Played("AB", [(p, p), (p, p)])
    full = rng.normal(size=(p, p))
    chain.step({"B": (entries(full), full)})
    ranks = []
    for _ in range(8):
        change = hr.outer(rng.normal(size=p), rng.normal(size=p))
        chain.step({"A": (change, change.to_numpy())})
        chain.check()
        ranks.append(chain.view.matrix(0, chain.state).rank)
    assert dense.most_factors((p, p)) == 3
    assert ranks == [1, 2, 3, 0, 1, 2, 3, 0]


def test_what_is_refused() -> None:
    view = chain_of("AB", [(2, 3), (3, 2)])
    rows = pa.table(
        {
            "i": [0, 2, 0, None, 1, None, 1],
            "j": [2, 0, -1, 1, 1, 1, None],
            "value": [1.0, 1.0, 1.0, 1.0, float("nan"), 1.0, 2.0],
            "term": pa.array([None, None, None, None, None, 7, 7], pa.int64()),
            "__diff": [1, 1, 1, 1, 1, -1, 1],
        }
    )
    refused = view.refused("A", Played("AB", [(2, 3), (3, 2)]).evaluated(rows))
    assert sorted(refused) == [1, 2, 3, 4, 5]
    assert "outside" in refused[1]
    assert "subtract" in refused[5]
    with pytest.raises(SchemaError, match="3 columns, 'B' has 4 rows"):
        chain_of("AB", [(2, 3), (4, 2)])
    with pytest.raises(BadRowsError, match="no vector"):
        hr.outer([[1.0]], [1.0])
