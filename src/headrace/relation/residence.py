"""In which bucket an entry of an arrangement lies: what a step needs that adds entries of all buckets at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.relation.runset import Router

Lead = Callable[[Words], NDArray[np.uint64]]


@dataclass(frozen=True)
class Residence:
    """The buckets of one arrangement's entries.

    Parameters
    ----------
    lead : gives the word that decides the bucket, from the words of entries; None if one bucket has all entries.
    bucket : that one bucket.
    by_key : whether the words of the keys that are looked for suffice to tell the bucket.
    """

    buckets: int
    lead: Lead | None
    bucket: int = 0
    by_key: bool = True

    def of(self, words: Words) -> NDArray[np.int32]:
        """The bucket of each entry."""
        if self.lead is None:
            return np.full(words.shape[1], self.bucket, np.int32)
        codes = np.empty(words.shape[1], np.int32)
        kernels.buckets_of(self.lead(words), self.buckets, codes)
        return codes

    @property
    def router(self) -> Router | None:
        """Tells in which bucket to look for keys; None if they may lie in any."""
        return self.of if self.by_key else None


def first_word(words: Words) -> NDArray[np.uint64]:
    """The word that decides the bucket of a table's row."""
    return np.ascontiguousarray(words[0])
