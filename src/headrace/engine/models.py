"""Handles of moments and models, for data scientists. Reading a handle reads the state of the last step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.engine.access import Access
from headrace.engine.catalogue import Entry
from headrace.engine.definition import FeatureMoments, ModelRequest
from headrace.engine.kept_handle import KeptHandle
from headrace.engine.reader import Reader
from headrace.errors import SchemaError
from headrace.factorized.answers import MOMENTS, MomentsAnswer
from headrace.learn.grouped import predict_by_group
from headrace.learn.moments import Moments
from headrace.learn.regression import LinearRegression
from headrace.relation.arrangement import alive, scan
from headrace.rings.covariance import Covariance as Ring
from headrace.rings.covariance import permuted
from headrace.runtime.log import BucketState
from headrace.runtime.openruns import OPEN

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]


class KeepsMoments(Protocol):
    """A kernel whose answer is moments, however it computes them."""

    @property
    def answer(self) -> MomentsAnswer:
        """How the answer is kept."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """The variables whose moments it keeps, in the order in which they are kept."""
        ...


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

    def moments(self, features: Sequence[str] | None = None) -> Moments:
        """The moments of all rows together, of some features or of all."""
        whole = self._total() if self.groups else self._all()[0]
        return whole if features is None else whole.select(features)

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
        shifts, variable = self.planned.definition.shifts, self._answer.variables
        shift = np.array([float(shifts.get(variable[name], 0.0)) for name in self.features])
        return [Moments.of_row(self.features, row, shift) for row in rows]

    def _read(self) -> tuple[pa.Table, Numbers]:
        """Read the groups and their moments, with features in the requested order."""
        self._entry.check_there()
        return self._access.state.read(self._read_from)

    def _read_from(self, reader: Reader) -> tuple[pa.Table, Numbers]:
        kernel = cast(KeepsMoments, self.planned.kernel)  # no other kernel is planned for moments
        answer, names = kernel.answer, self._answer.variables
        ring = Ring(answer.degree)
        states = reader.states(self.name, MOMENTS)
        tables, rows = [], []
        kinds = {name: kind for name, kind, _ in self._answer.analysed.schema}
        schema = pa.schema([pa.field(name, kinds[name].arrow) for name in self.groups])
        for bucket in range(reader.buckets):
            run = scan(ring, OPEN.of(reader.root, states, bucket))
            if run is None:
                continue
            run = run.take(np.flatnonzero(alive(run.payload)))
            decoded = answer.keys.decode(run.words) if self.groups else []
            columns = [run.values[f"k{i}"] if column is None else column for i, column in enumerate(decoded)]
            tables.append(pa.table(columns, schema=schema))
            rows.append(run.payload[0])
        order = [kernel.features.index(names[feature]) for feature in self.features]
        whole = np.concatenate(rows) if rows else ring.zeros(0)[0]
        if not self.groups and not len(whole):
            whole = ring.zeros(1)[0]
        keys = pa.concat_tables(tables) if tables else schema.empty_table()
        return keys, permuted(whole, answer.degree, order)

    def __repr__(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        return f"Covariance({self.name!r}, {len(self.features)} features{by})"


class Model(Covariance):
    """A model that follows the data. It is fitted when it is read, if a step has changed its moments since."""

    def __init__(self, access: Access, entry: Entry) -> None:
        super().__init__(access, entry)
        request = entry.planned.definition.request
        assert isinstance(request, ModelRequest)
        self._regression = LinearRegression(**request.model)
        self._fitted_to: dict[int, BucketState] | None = None  # the state of the moments at the last fit
        self._by_group: dict[tuple[Any, ...], LinearRegression] = {}

    @property
    def model(self) -> LinearRegression:
        """The fitted model as of the last step."""
        if self.groups:
            raise SchemaError(
                f"model {self.name!r} has one model a group ({', '.join(self.groups)})",
                way_out="use .models, which has them by group",
            )
        state = self._state()
        if state != self._fitted_to:
            self._regression.fit(self.moments())
            self._fitted_to = state
        return self._regression

    @property
    def models(self) -> dict[tuple[Any, ...], LinearRegression]:
        """The fitted model of each group, by the values of its GROUP BY columns."""
        state = self._state()
        if state != self._fitted_to:
            fitted = {}
            for key, moments in self.by_group():
                at = tuple(key.values())
                fitted[at] = self._by_group.get(at, self._regression.clone()).fit(moments)
            self._by_group, self._fitted_to = fitted, state
        return dict(self._by_group)

    def _state(self) -> dict[int, BucketState]:
        return dict(self._access.state.latest.states(self.name, MOMENTS))

    @property
    def coef_(self) -> Numbers:
        """The coefficient of each feature, in the order of `feature_names_`."""
        return self.model.coef_

    @property
    def intercept_(self) -> float:
        return self.model.intercept_

    @property
    def feature_names_(self) -> tuple[str, ...]:
        return self.model.feature_names_

    @property
    def iterations_(self) -> int:
        """Iterations that the last fit took (0 in closed form)."""
        return self.model.iterations_

    def to_arrow(self) -> pa.Table:
        """One row per model: the key of its group, its count of training rows, the intercept and the coefficients."""
        fitted = self.models if self.groups else {(): self.model}
        rows = []
        for key, model in fitted.items():
            row = dict(zip(self.groups, key, strict=True)) | {"count": model.count_, "intercept": model.intercept_}
            rows.append(row | dict(zip(model.feature_names_, model.coef_.tolist(), strict=True)))
        return pa.Table.from_pylist(rows)

    def predict(self, frame: Any) -> Any:
        """Predict the label for rows of a Spark or pandas DataFrame, or an Arrow table; by group, if there are any."""
        if self.groups:
            return predict_by_group(frame, self.groups, self.models)
        return self.model.predict(frame)

    def score(self, frame: Any = None) -> float:
        """R squared on some rows, or on the training rows themselves."""
        return self.model.score(self.moments() if frame is None else frame)

    def __repr__(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        return f"Model({self.name!r}, {self._regression!r}{by})"


def settings(model: LinearRegression) -> dict[str, Any]:
    """The settings of a model as plain values, from which the same model can be made again."""
    return {
        "label": model.label,
        "features": None if model.features is None else list(model.features),
        "alpha": model.alpha,
        "solver": model.solver,
        "tolerance": model.tolerance,
        "max_iterations": model.max_iterations,
    }
