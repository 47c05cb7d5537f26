"""What decides whether a shared subplan is taken apart: which rows of a sample each of its readers wants."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import JOIN, Changing, always, opened

from headrace.engine.unsharing import marks_of

GROUPS = (
    "SELECT s.city, MAX(n) AS most FROM (SELECT shop, COUNT(*) AS n FROM orders {} GROUP BY shop) o JOIN shops s {}"
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            f"SELECT s.city, MAX(o.price) AS most FROM {JOIN} WHERE o.day = 1 GROUP BY s.city",
            f"SELECT s.city, MAX(o.price) AS most FROM {JOIN} WHERE o.day < 3 GROUP BY s.city",
            id="joins",
        ),
        pytest.param(
            GROUPS.format("WHERE day = 1", "ON o.shop = s.id GROUP BY s.city"),
            GROUPS.format("WHERE day < 3", "ON o.shop = s.id GROUP BY s.city"),
            id="groups",
        ),
    ],
)
def test_a_sample_says_which_rows_each_reader_wants(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    always(monkeypatch)
    rng = random.Random(4)
    changing = Changing(rng)
    changing.rows["shops"] = [(i, rng.choice(["Rome", "Oslo"]), i % 5) for i in range(9)]
    changing.rows["orders"] = [changing.row("orders") for _ in range(300)]
    with opened(spark, tmp_path / "state") as engine:
        engine.apply({name: changing.table(name, changing.rows[name]) for name in ("shops", "orders")})
        for name, sql in (("first", first), ("second", second)):
            engine.view(name, sql, strategy="operators")
        (shared,) = engine._catalogue.shared.values()
        kernels = {name: engine._catalogue.views[name].kernel.alone for name in ("first", "second")}
        samples = engine._sharing.samples(kernels)
        marks = marks_of(shared, samples)
    assert marks is not None
    assert marks, "the readers have different conditions"
    days = np.array(samples["orders"].rows.column("day").to_pylist(), float)
    wanted = {"first": int((days == 1).sum()), "second": int((days < 3).sum())}
    assert wanted["first"] != wanted["second"]
    assert [{view: int(mark.sum()) for view, mark in own.items()} for own in marks.values()] == [wanted]
