"""Every strategy, handle and estimator that is registered obeys every law."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.seeds import drawn, share

from headrace.testing.contracts import Law, World, contracts
from headrace.testing.subjects import Subject

ALL = {f"{subject.name}: {law.__name__}": (law, subject) for law, subject in contracts()}
CHECKED = share("contracts", sorted(ALL), 5)


@pytest.mark.parametrize(
    ("law", "subject"),
    [pytest.param(*pair, id=name, marks=[pytest.mark.check] * (name in CHECKED)) for name, pair in ALL.items()],
)
def test_contracts(law: Law, subject: Subject, spark: SparkSession, tmp_path: Path) -> None:
    law(World(spark, tmp_path, drawn("contracts", 1)[0]), subject)
