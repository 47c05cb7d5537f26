"""What every model has, whatever it learns: so that nothing outside has to ask which one it is.

A model is a few settings, the payload that it needs of the rows it learns from, and a `fit` of that payload. The engine
stores the settings in a definition, keeps the payload fresh, and fits the model when somebody reads it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from headrace.errors import NotEnoughDataError, SchemaError

L = TypeVar("L", bound="Learner")

NUMBERS, CATEGORIES, MIXED = "numbers", "categories", "numbers and categories"


@dataclass(frozen=True)
class Derived:
    """A column that a model needs and the query lacks, as an SQL expression over the query's columns.

    Parameters
    ----------
    name : of the column.
    sql : the expression.
    replaces : whether it takes the place of the query's column of this name (a bin that of the value in it).
    """

    name: str
    sql: str
    replaces: bool = False


@dataclass(frozen=True)
class Needs:
    """Which payload a model learns from.

    Parameters
    ----------
    columns : the columns of the query whose payload is kept; None for all that can be features.
    takes : NUMBERS, of which sums and sums of products are kept (`Moments`); CATEGORIES, of which the counts of levels
        and of pairs of levels are kept (`Counts`); or MIXED, both of them (`MixedMoments`, if there are categories).
    derived : columns that the query lacks.
    """

    columns: tuple[str, ...] | None
    takes: str = NUMBERS
    derived: tuple[Derived, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether all columns are categories, numbers too."""
        return self.takes == CATEGORIES


class Learner(ABC):
    """A model that is fitted to a payload of rows, never to the rows.

    What `__init__` is given is kept under the same names, as plain values (numbers, text, tuples of them, None), and is
    never changed by `fit`. What `fit` has learned ends in an underscore. Fitting again forgets what was learned before,
    except where an answer may be found faster from there (a descent).
    """

    shown: ClassVar[tuple[str, ...]]
    """The attributes that the handle of a fitted model has as well."""

    def settings(self) -> dict[str, Any]:
        """The settings as plain values, from which the same model can be made again (`registry.model_of`)."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: _plain(getattr(self, name)) for name in names}

    def clone(self: L) -> L:
        """Return a model with the same settings that has not been fitted."""
        return type(self)(**self.settings())

    def __repr__(self) -> str:
        given = inspect.signature(type(self).__init__).parameters
        default = {name: _plain(parameter.default) for name, parameter in given.items()}
        # None, nothing and empty are the same to say: no bins are no bins.
        said = {name: value for name, value in self.settings().items() if value or default[name]}
        changed = [f"{name}={value!r}" for name, value in said.items() if value != default[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @abstractmethod
    def needs(self) -> Needs:
        """The payload that `fit` needs."""

    @abstractmethod
    def fit(self: L, payload: Any) -> L:
        """Learn from the payload that it `needs`; returns the model itself."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """What was learned as rows of plain values: the same columns in every row, whatever the data."""

    def says(self) -> str:
        """Say in a clause what is learned, for EXPLAIN."""
        return repr(self)

    def predict(self, frame: Any) -> Any:
        """Predict for each row of a pandas, Arrow or Spark table; a model that predicts nothing refuses."""
        raise self._no("predictions")

    def score(self, data: Any) -> float:
        """How good the model is on some rows, or on the payload it was fitted to; some models have no score."""
        raise self._no("score")

    def predict_by_group(self, frame: Any, groups: Sequence[str], models: Mapping[tuple[Any, ...], Any]) -> Any:
        """Predict for each row by the model of its group; rows of a group without a model get no prediction."""
        from headrace.learn.grouped import predict_by_group

        return predict_by_group(frame, groups, models)

    def need_fit(self, attribute: str) -> None:
        """Refuse to go on if `fit` has not set this attribute yet."""
        if not hasattr(self, attribute):
            raise NotEnoughDataError("this model has not been fitted", way_out="call fit(...) first")

    def _no(self, what: str) -> SchemaError:
        return SchemaError(f"{type(self).__name__} has no {what}", way_out=f"read what it has: {', '.join(self.shown)}")


def _plain(value: Any) -> Any:
    """Tuples as lists, and mappings as dictionaries, as JSON gives them back."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return value
