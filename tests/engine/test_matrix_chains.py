"""Products of matrices through the engine: outer products are committed with their step, and survive a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr

P = 64


@pytest.mark.parametrize("executor", ["auto", "spark"])
def test_dense_chain(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a1": (P, 2 * P), "a2": (2 * P, P), "a3": (P, P + 7)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    with hr.Engine(spark, tmp_path / "state", executor=executor) as engine:
        chain = engine.matrix_chain("product", shapes)
        assert isinstance(chain, hr.MatrixChain)
        for name, array in arrays.items():
            chain.load(name, array)
        check(chain, arrays)
        for number in range(4):  # more than are kept as factors
            change = hr.outer(rng.normal(size=2 * P), rng.normal(size=P)) + hr.outer(np.eye(2 * P)[number], np.ones(P))
            row = np.zeros((P, P + 7))
            row[number] = rng.normal(size=P + 7)
            step = engine.apply({"a2": change, "a3": hr.Outer(hr.outer(np.eye(P)[number], row[number]).terms)})
            assert step.rows["a2"] == 2 * P + P + 1 + P
            arrays["a2"] = arrays["a2"] + change.to_numpy()
            arrays["a3"] = arrays["a3"] + row
            check(chain, arrays)
        with pytest.raises(hr.BadRowsError, match="outside of the matrix"):
            engine.apply({"a1": hr.outer(np.ones(P + 1), np.ones(3))})
        check(chain, arrays)
    with hr.Engine(spark, tmp_path / "state", executor=executor) as engine:
        chain = engine.matrix_chain("product", shapes)
        assert chain is engine.views["product"]
        check(chain, arrays)
        column = pa.table({"i": np.arange(P), "j": np.full(P, 5), "value": np.ones(P), "term": pa.nulls(P, pa.int64())})
        engine.apply({"a1": column})
        arrays["a1"][:, 5] += 1.0
        check(chain, arrays)
        said = str(chain.explain())
        assert "by dynamic programming" in said
        assert "da1" in said
        assert chain.explain().to_svg().startswith("<svg")
        assert engine.status()["views"]


def check(chain: hr.MatrixChain, arrays: dict[str, np.ndarray]) -> None:
    wanted = arrays["a1"] @ arrays["a2"] @ arrays["a3"]
    np.testing.assert_allclose(chain.to_numpy(), wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(chain @ np.ones(P + 7), wanted @ np.ones(P + 7), rtol=0, atol=1e-8)
    np.testing.assert_allclose(chain.rows_at([3, 0]), wanted[[3, 0]], rtol=0, atol=1e-9)
    np.testing.assert_allclose(chain.to_numpy("a2"), arrays["a2"], rtol=0, atol=1e-12)


def sparse(rng: np.random.Generator, count: int) -> pa.Table:
    i, j = rng.integers(12, size=(2, count))
    return pa.table({"i": i, "j": j, "value": rng.integers(1, 9, count).astype(float)})


def test_sparse_chain_with_deletes_and_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Entries that all cancel leave nothing behind, and sums are those of NumPy to the last bit."""
    rng = np.random.default_rng(6)
    rows: dict[str, list[pa.Table]] = {name: [] for name in ("r", "s", "t")}

    def step(engine: hr.Engine, deletes: int) -> None:
        changes = {}
        for name, kept in rows.items():
            old = pa.concat_tables(kept) if kept else sparse(rng, 0)
            at = rng.permutation(old.num_rows)
            gone, new = old.take(at[:deletes]), sparse(rng, 9)
            rows[name] = [old.take(at[deletes:]), new]
            diff = pa.array(np.repeat([1, -1], [new.num_rows, gone.num_rows]))
            changes[name] = pa.concat_tables([new, gone]).append_column("__diff", diff)
        engine.apply(changes)

    def check(chain: hr.SparseChain) -> None:
        arrays = []
        for kept in rows.values():
            array = np.zeros((12, 12))
            for table in kept:
                np.add.at(array, (table["i"].to_numpy(), table["j"].to_numpy()), table["value"].to_numpy())
            arrays.append(array)
        assert (chain.to_numpy((12, 12)) == arrays[0] @ arrays[1] @ arrays[2]).all()

    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=2) as engine:
        for name in rows:
            engine.table(name, "i BIGINT, j BIGINT, value DOUBLE")
        chain = engine.matrix_chain("product", ["r", "s", "t"])
        assert isinstance(chain, hr.SparseChain)
        for deletes in (0, 4, 7):
            step(engine, deletes)
            check(chain)
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        chain = engine.matrix_chain("product", ["r", "s", "t"])
        assert isinstance(chain, hr.SparseChain)
        check(chain)
        step(engine, 5)
        check(chain)
        engine.apply(
            {
                name: (old := pa.concat_tables(kept)).append_column("__diff", pa.array(np.full(old.num_rows, -1)))
                for name, kept in rows.items()
            }
        )
        rows.update({name: [] for name in rows})
        check(chain)
        assert chain.to_arrow().num_rows == 0


def test_sparse_chain(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    arrays = {name: np.zeros((12, 12)) for name in ("r", "s", "t")}
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        for name in arrays:
            engine.table(name, "i BIGINT, j BIGINT, value DOUBLE")
        chain = engine.matrix_chain("product", ["r", "s", "t"])
        assert isinstance(chain, hr.SparseChain)
        for _ in range(3):
            changes = {}
            for name, array in arrays.items():
                i, j = rng.integers(12, size=(2, 9))
                value = rng.integers(1, 9, 9).astype(float)
                np.add.at(array, (i, j), value)
                changes[name] = pa.table({"i": i, "j": j, "value": value})
            engine.apply(changes)
            wanted = arrays["r"] @ arrays["s"] @ arrays["t"]
            assert (chain.to_numpy((12, 12)) == wanted).all()
        with pytest.raises(hr.BadRowsError, match="outer products"):
            engine.apply({"r": hr.outer([1.0], [1.0])})
    with hr.Engine(spark, tmp_path / "other") as engine:
        with pytest.raises(hr.SchemaError, match="two or more"):
            engine.matrix_chain("one", {"a": (2, 2)})
        with pytest.raises(hr.SchemaError, match="2 columns, 'b' has 3 rows"):
            engine.matrix_chain("two", {"a": (2, 2), "b": (3, 2)})
        assert not engine.tables
