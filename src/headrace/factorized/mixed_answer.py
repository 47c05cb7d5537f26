"""The answer of moments with categorical features: scalars, sums by level and counts by pair, each a relation.

Levels and pairs of all categories lie in one arrangement each, with the number of the category (or of the pair) in the
key. Values that do not fit a code are stored once, in a relation of their own: it counts in how many rows of its table
each value occurs, in the same steps as everything else, so that a value is there as long as a row has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.factorized.answers import MOMENTS, MomentsAnswer
from headrace.factorized.bucket import without_residue
from headrace.factorized.matches import grouped
from headrace.factorized.mixed_delta import MixedChange
from headrace.operators.delta import split
from headrace.operators.kernel import Incoming, Lifted, Reduced, State, ViewChange
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import KeyLayout
from headrace.relation.run import Run, merge
from headrace.relation.variables import Variables, is_hashed
from headrace.rings import COUNT, Group, take
from headrace.rings.vector import Vector

LEVELS, PAIRS = "levels", "pairs"
VALUES = "=values"  # it travels beside changes of relations, which may have any name


@dataclass(frozen=True)
class MixedAnswer:
    """Covariance triples by group, and by group and level: counts and sums; and by pair of levels: counts."""

    moments: MomentsAnswer
    categories: tuple[str, ...]  # the variables, in the order in which they are numbered

    @property
    def keys(self) -> KeyLayout:
        return self.moments.keys

    @property
    def degree(self) -> int:
        return self.moments.degree

    @property
    def variables(self) -> Variables:
        return self.moments.variables

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of categories, in the order in which they are numbered."""
        return tuple(combinations(range(len(self.categories)), 2))

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        kept: dict[str, Group] = {**self.moments.arrangements, LEVELS: Vector(self.degree)}
        if self.pairs:
            kept[PAIRS] = Vector(0)
        if any(is_hashed(self.variables.kinds[name].type) for name in self.categories):
            kept[VALUES] = COUNT
        return kept

    def split(self, changes: Sequence[MixedChange], buckets: int) -> Lifted:
        parts: dict[str, list[Run]] = {}
        for change in changes:
            for part, run in self._runs(change).items():
                parts.setdefault(part, []).append(run)
        out: Lifted = {}
        for part, runs in parts.items():
            for bucket, piece in split(merge(self.arrangements[part], runs), buckets).items():
                out.setdefault(bucket, {})[part] = piece
        return out

    def _runs(self, change: MixedChange) -> dict[str, Run]:
        root = Run(change.heads, (change.sums.moments,), change.texts)
        moments, order = self.moments.regrouped(root)
        groups = np.empty((moments.words.shape[0], moments.rows), np.uint64)
        groups[:, order] = moments.words  # by the number that a group has in the change
        levels, sums = [], []
        for i, own in enumerate(change.sums.levels):
            levels.append(self._key(groups[:, own.group], i, change.levels[i][own.code]))
            sums.append(own.sums)
        out = {MOMENTS: moments, LEVELS: _sorted_run(levels, sums)}
        if self.pairs:
            pairs, counts = [], []
            for i, (a, b) in enumerate(self.pairs):
                found = change.sums.pairs[a, b]
                codes = change.levels[a][found.left], change.levels[b][found.right]
                pairs.append(self._key(groups[:, found.group], i, *codes))
                counts.append(found.counts[:, None])
            out[PAIRS] = _sorted_run(pairs, counts)
        return out

    def _key(self, groups: Words, number: int, *codes: Words) -> Words:
        """A key: a hash of the rest, the key of the group, the number of the category or pair, and the codes."""
        rows = groups.shape[1]
        words = np.concatenate([groups, np.full((1, rows), number, np.uint64), *(code[None, :] for code in codes)])
        return self._with_lead(words)

    def _with_lead(self, words: Words) -> Words:
        lead = np.empty(words.shape[1], np.uint64)
        kernels.fold(words, np.uint64(self.variables.seed), lead)
        return np.concatenate([lead[None, :], words])

    def values(self, columns: Mapping[str, pa.Array], diff: Positions) -> Run | None:
        """Count the values of categories, as far as their codes do not tell them; None if all do.

        Their keys: a hash of the rest, the number of the category, the code, and the words that it is a hash of.
        """
        runs = []
        for name, column in columns.items():
            if name in self.categories and is_hashed(self.variables.kinds[name].type) and len(column):
                whole = self.variables.whole_words(name, column)
                heads, group_of, first = grouped(whole, False)
                number = np.full((1, heads.shape[1]), self.categories.index(name), np.uint64)
                code = self.variables.hashed(heads)[None, :]
                words = self._with_lead(np.concatenate([number, code, heads]))
                texts = take_column(column, first).cast(pa.large_string())
                counts = COUNT.sum_by((diff,), group_of, heads.shape[1])
                order = kernels.sort_order(words)
                found = Run(np.take(words, order, axis=1), take(counts, order), {"value": take_column(texts, order)})
                runs.append(found)
        return merge(COUNT, runs) if runs else None

    def reduce(self, state: State, incoming: Incoming) -> Reduced:
        done = self.moments.reduce(state, incoming) if incoming.get(MOMENTS) else Reduced(summary=ViewChange())
        for part, group in self.arrangements.items():
            if part == MOMENTS or not incoming.get(part):
                continue
            change = without_residue(group, state[part], merge(group, list(incoming[part])))
            if change.rows:
                before = lookup(group, state[part], change.words)
                was, now = alive(before), alive(group.add(before, change.payload))
                done.runs[part], done.live[part] = change, int(now.sum()) - int(was.sum())
        return done


def _sorted_run(words: list[Words], payloads: list[NDArray[np.float64]]) -> Run:
    every, payload = np.concatenate(words, axis=1), np.concatenate(payloads)
    order = kernels.sort_order(every)
    return Run(np.take(every, order, axis=1), (np.take(payload, order, axis=0),))
