"""The handle of a model: the payload that it learns from, and the model that was fitted to it, whichever that is.

What a model learns, stores and shows it says itself (`learn.learner`). So this handle is that of every model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headrace.engine.access import Access
from headrace.engine.catalogue import Entry
from headrace.engine.definition import ModelRequest
from headrace.engine.models import Covariance
from headrace.errors import SchemaError
from headrace.factorized.answers import MOMENTS
from headrace.factorized.mixed_answer import LEVELS, PAIRS
from headrace.learn.learner import MIXED, Learner
from headrace.learn.registry import model_of
from headrace.runtime.record import BucketState


class Model(Covariance):
    """A model that follows the data. It is fitted when it is read, if a step has changed its payload since.

    Besides what is here, a handle has the attributes that its model shows: `coef_` of a regression, `edges_` of a
    Chow-Liu tree.
    """

    def __init__(self, access: Access, entry: Entry) -> None:
        super().__init__(access, entry)
        request = entry.planned.definition.request
        assert isinstance(request, ModelRequest)
        self._learner = model_of(request.model)
        self._fitted_to: dict[tuple[str, int], BucketState] | None = None  # the state of the payload at the last fit
        self._by_group: dict[tuple[Any, ...], Learner] = {}

    @property
    def model(self) -> Any:
        """The fitted model as of the last step."""
        if self.groups:
            raise SchemaError(
                f"model {self.name!r} has one model a group ({', '.join(self.groups)})",
                way_out="use .models, which has them by group",
            )
        state = self._state()
        if state != self._fitted_to:
            self._learner.fit(self._payload())
            self._fitted_to = state
        return self._learner

    @property
    def models(self) -> dict[tuple[Any, ...], Any]:
        """The fitted model of each group, by the values of its GROUP BY columns."""
        state = self._state()
        if state != self._fitted_to:
            fitted = {}
            for key, payload in self.mixed_by_group() if self.categorical else self.by_group():
                at = tuple(key.values())
                fitted[at] = self._by_group.get(at, self._learner.clone()).fit(payload)
            self._by_group, self._fitted_to = fitted, state
        return dict(self._by_group)

    def to_arrow(self) -> pa.Table:
        """What was learned as rows, as the model gives them; by group, if there are any, with the group's key."""
        fitted = self.models if self.groups else {(): self.model}
        keys = [dict(zip(self.groups, key, strict=True)) for key in fitted]
        rows = [key | row for key, model in zip(keys, fitted.values(), strict=True) for row in model.rows()]
        names = dict.fromkeys(name for row in rows for name in row)  # groups may have levels of their own
        return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])

    def predict(self, frame: Any) -> Any:
        """Predict for rows of a Spark or pandas DataFrame, or an Arrow table; by group, if there are any."""
        if self.groups:
            return self._learner.predict_by_group(frame, self.groups, self.models)
        return self.model.predict(frame)

    def score(self, frame: Any = None) -> float:
        """How good the model is on some rows, or on the training rows themselves (R squared of a regression)."""
        return self.model.score(self._payload() if frame is None else frame)

    def ranking(self, label: str) -> list[tuple[str, float]]:
        """The other features in the order of what they say of a label: by the model's measure, or by correlation."""
        return self.model.ranking(label) if "ranking" in self._learner.shown else super().ranking(label)

    def __getattr__(self, name: str) -> Any:
        # Only what the class lacks comes here. Not before __init__ is done, as `_learner` would be asked for again.
        learner = vars(self).get("_learner")
        if learner is not None and name in learner.shown:
            return getattr(self.model, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._learner.shown]

    def __repr__(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        mixed = self.categorical and self._learner.needs().takes == MIXED
        levels = f", by level of {', '.join(self.categorical)}" if mixed else ""
        return f"Model({self.name!r}, {self._learner!r}{levels}{by})"

    def _payload(self) -> Any:
        return self.mixed_moments() if self.categorical else self.moments()

    def _state(self) -> dict[tuple[str, int], BucketState]:
        # Rows that move to other levels change sums by level, and no sum of all rows.
        latest, parts = self._access.state.latest, [MOMENTS, *([LEVELS, PAIRS] if self.categorical else [])]
        return {(part, b): state for part in parts for b, state in latest.states(self.name, part).items()}
