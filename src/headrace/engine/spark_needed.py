"""What is raised where a location is looked at without Spark, and the question cannot be answered so."""

from __future__ import annotations


class SparkNeeded(Exception):
    """Only Spark has the answer; `why` says why, as a clause."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
