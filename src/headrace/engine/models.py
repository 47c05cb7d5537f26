"""Handles of moments, for data scientists. Reading a handle reads the state of the last step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.engine.definition import FeatureMoments
from headrace.engine.kept_handle import KeptHandle
from headrace.engine.stored_moments import StoredMoments, mixed_by_group, mixed_of_all
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]


class Covariance(KeptHandle):
    """The count, sums and sums of products of some features of a query, kept fresh.

    Without GROUP BY, `count` is a number, `sums` has one value per feature and `cofactor` one per pair of features.
    With GROUP BY they have one more dimension in front, for the groups, in the order of `keys`.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """The features, in the order of `sums` and `cofactor`."""
        return self._answer.features

    @property
    def categorical(self) -> tuple[str, ...]:
        """The categorical features, which have no sums: `mixed_moments` has them by level."""
        return self._answer.categorical

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of GROUP BY."""
        return self._answer.groups

    @property
    def rows(self) -> int:
        """How many groups there are (1 without GROUP BY)."""
        return len(self._read()[1]) if self.groups else 1

    @property
    def keys(self) -> pa.Table:
        """The keys of the groups, in the order of `count`, `sums` and `cofactor`."""
        return self._read()[0]

    @property
    def count(self) -> Any:
        """How many rows the query has (in each group)."""
        counts = [round(moments.count) for moments in self._all()]
        return np.array(counts, np.int64) if self.groups else counts[0]

    @property
    def sums(self) -> Numbers:
        """The sum of each feature."""
        return self._stacked([moments.sums for moments in self._all()], 1)

    @property
    def cofactor(self) -> Numbers:
        """The sum of the product of each pair of features."""
        return self._stacked([moments.cofactor for moments in self._all()], 2)

    @property
    def correlation(self) -> Numbers:
        """The correlation of each pair of features; NaN for a feature that does not vary."""
        return self._stacked([moments.correlation() for moments in self._all()], 2)

    def ranking(self, label: str) -> list[tuple[str, float]]:
        """The other features by the size of their correlation with a label, over all rows together."""
        return self.moments().ranking(label)

    def moments(self, features: Sequence[str] | None = None) -> Moments:
        """The moments of all rows together, of some features or of all."""
        whole = self._total() if self.groups else self._all()[0]
        return whole if features is None else whole.select(features)

    def mixed_moments(self, features: Sequence[str] | None = None) -> MixedMoments:
        """The moments of all rows together, of continuous and categorical features: of some of them, or of all."""
        mixed = self._access.state.read(partial(mixed_of_all, self._stored))
        return mixed if features is None else mixed.select(features)

    def mixed_by_group(self) -> list[tuple[dict[str, Any], MixedMoments]]:
        """The moments of each group, of continuous and categorical features, with its key."""
        keys, found = self._access.state.read(partial(mixed_by_group, self._stored))
        return list(zip(keys.to_pylist() if self.groups else [{}], found, strict=True))

    def by_group(self) -> list[tuple[dict[str, Any], Moments]]:
        """The moments of each group, with its key."""
        keys, rows = self._read()
        return list(zip(keys.to_pylist() if self.groups else [{}], self._moments(rows), strict=True))

    def to_arrow(self) -> pa.Table:
        """One row per group: its key, the count, the sums and the products (row by row of the symmetric matrix)."""
        keys, rows = self._read()
        moments = self._moments(rows)
        counts = pa.array([round(m.count) for m in moments], pa.int64())
        table = keys.append_column("count", counts) if self.groups else pa.table({"count": counts})
        table = table.append_column("sums", pa.array([m.sums.tolist() for m in moments], pa.list_(pa.float64())))
        flat = [m.cofactor.ravel().tolist() for m in moments]
        return table.append_column("cofactor", pa.array(flat, pa.list_(pa.float64())))

    def to_pandas(self) -> pd.DataFrame:
        """The table of `to_arrow` as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _answer(self) -> FeatureMoments:
        assert isinstance(self.planned.answer, FeatureMoments)
        return self.planned.answer

    def _stacked(self, values: list[Numbers], dimensions: int) -> Numbers:
        if not self.groups:
            return values[0]
        return np.stack(values) if values else np.zeros((0, *[len(self.features)] * dimensions))

    def _total(self) -> Moments:
        _, rows = self._read()
        return self._moments(rows.sum(axis=0, keepdims=True))[0]

    def _all(self) -> list[Moments]:
        return self._moments(self._read()[1])

    def _moments(self, rows: Numbers) -> list[Moments]:
        return self._stored.moments(rows)

    def _read(self) -> tuple[pa.Table, Numbers]:
        """Read the groups and their moments, with features in the requested order."""
        read = self._access.state.read(self._stored.read)
        return read.keys, read.rows

    @property
    def _stored(self) -> StoredMoments:
        self._entry.check_there()
        return StoredMoments(self.name, self.planned)

    def __repr__(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        levels = f", by level of {', '.join(self.categorical)}" if self.categorical else ""
        return f"Covariance({self.name!r}, {len(self.features)} features{levels}{by})"
