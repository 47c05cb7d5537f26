"""Moments as they are stored, read back as values: by group, and by level where features are categorical."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.engine.definition import FeatureMoments, PlannedView
from headrace.engine.reader import Reader
from headrace.factorized.answers import MOMENTS, MomentsAnswer
from headrace.factorized.mixed_answer import PAIRS, VALUES, MixedAnswer
from headrace.factorized.mixed_reading import mixed_moments
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments
from headrace.relation.arrangement import alive, scan
from headrace.relation.kernels import Words
from headrace.relation.run import Run, consolidate, merge
from headrace.rings import Group, concatenate
from headrace.rings.covariance import Covariance as Ring
from headrace.rings.covariance import permuted
from headrace.runtime.openruns import OPEN

Numbers = NDArray[np.float64]


class KeepsMoments(Protocol):
    """A kernel whose answer is moments, however it computes them."""

    @property
    def answer(self) -> MomentsAnswer | MixedAnswer:
        """How the answer is kept."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """The variables whose moments it keeps, in the order in which they are kept."""
        ...


@dataclass(frozen=True)
class Groups:
    """The groups of some moments.

    Parameters
    ----------
    keys, words : the keys of the groups, as columns and as words.
    rows : a covariance triple per group.
    """

    keys: pa.Table
    words: Words
    rows: Numbers


@dataclass(frozen=True)
class StoredMoments:
    """The stored moments of one view."""

    name: str
    planned: PlannedView

    @property
    def kernel(self) -> KeepsMoments:
        return cast(KeepsMoments, self.planned.kernel)  # no other kernel is planned for moments

    @property
    def answer(self) -> FeatureMoments:
        assert isinstance(self.planned.answer, FeatureMoments)
        return self.planned.answer

    @property
    def order(self) -> list[int]:
        """The number that each feature has in what is stored."""
        names = self.answer.variables
        return [self.kernel.features.index(names[feature]) for feature in self.answer.features]

    def moments(self, rows: Numbers) -> list[Moments]:
        """Moments from covariance triples, with the shifts of their features."""
        shifts, variable = self.planned.definition.shifts, self.answer.variables
        shift = np.array([float(shifts.get(variable[name], 0.0)) for name in self.answer.features])
        return [Moments.of_row(self.answer.features, row, shift) for row in rows]

    def read(self, reader: Reader) -> Groups:
        """Read the groups and their moments, with features in the requested order."""
        answer, by = self.kernel.answer, self.answer.groups
        ring = Ring(answer.degree)
        tables, words, rows = [], [], []
        kinds = {name: kind for name, kind, _ in self.answer.analysed.schema}
        schema = pa.schema([pa.field(name, kinds[name].arrow) for name in by])
        states = reader.states(self.name, MOMENTS)
        for bucket in range(reader.buckets):
            run = scan(ring, OPEN.of(reader.root, states, bucket))
            if run is None:
                continue
            run = run.take(np.flatnonzero(alive(run.payload)))
            decoded = answer.keys.decode(run.words) if by else []
            columns = [run.values[f"k{i}"] if column is None else column for i, column in enumerate(decoded)]
            tables.append(pa.table(columns, schema=schema))
            words.append(run.words)
            rows.append(run.payload[0])
        whole = np.concatenate(rows) if rows else ring.zeros(0)[0]
        every = np.concatenate(words, axis=1) if words else np.zeros((answer.keys.width, 0), np.uint64)
        if not by and not len(whole):
            whole, every = ring.zeros(1)[0], np.zeros((answer.keys.width, 1), np.uint64)
        keys = pa.concat_tables(tables) if tables else schema.empty_table()
        return Groups(keys, every, permuted(whole, answer.degree, self.order))

    def part(self, reader: Reader, part: str, group: Group) -> Run | None:
        """All buckets of an arrangement, added up; None if there is nothing in it."""
        states = reader.states(self.name, part)
        found = [scan(group, OPEN.of(reader.root, states, bucket)) for bucket in range(reader.buckets)]
        runs = [run for run in found if run is not None]
        if part == PAIRS and len(runs) > 1:  # each is in one bucket, so that there is nothing to add up, and many are
            return Run(np.concatenate([r.words for r in runs], axis=1), concatenate([r.payload for r in runs]), {})
        return merge(group, runs) if runs else None


def mixed_by_group(stored: StoredMoments, reader: Reader) -> tuple[pa.Table, list[MixedMoments]]:
    """The keys of the groups, and the moments of each, by level of the categorical features."""
    groups = stored.read(reader)
    return groups.keys, _mixed(stored, reader, groups, summed=False)


def mixed_of_all(stored: StoredMoments, reader: Reader) -> MixedMoments:
    """The moments of all groups together."""
    groups = stored.read(reader)
    if not stored.answer.groups:
        return _mixed(stored, reader, groups, summed=False)[0]
    words = np.zeros((groups.words.shape[0], 1), np.uint64)
    total = replace(groups, words=words, rows=groups.rows.sum(axis=0, keepdims=True))
    return _mixed(stored, reader, total, summed=True)[0]


def _mixed(stored: StoredMoments, reader: Reader, groups: Groups, *, summed: bool) -> list[MixedMoments]:
    moments, answer = stored.moments(groups.rows), stored.kernel.answer
    if not isinstance(answer, MixedAnswer):
        return [MixedMoments(own) for own in moments]
    runs = {part: stored.part(reader, part, ring) for part, ring in answer.arrangements.items() if part != MOMENTS}
    if summed:
        runs = {part: _without_groups(answer, part, run) for part, run in runs.items()}
    names = {name: stored.answer.variables[name] for name in stored.answer.categorical}
    return mixed_moments(answer, moments, groups.words, runs, names, stored.order)


def _without_groups(answer: MixedAnswer, part: str, run: Run | None) -> Run | None:
    """Add up what differs by group only."""
    if run is None or part == VALUES:
        return run
    words = run.words.copy()
    words[: 1 + answer.keys.width] = 0  # the hash and the key of the group
    return consolidate(answer.arrangements[part], words, run.payload, {})
