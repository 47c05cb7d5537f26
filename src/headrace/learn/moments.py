"""The moments of a join, which a covariance view keeps: its number of rows, the sums of features and of their products.

Second moments lose digits where a mean is large against the spread, because the spread is then a small difference of
two large sums. So a number near its mean, the shift, may be subtracted from a feature before it is summed. Everything
that needs differences works on the shifted moments, and only what is shown to a user is shifted back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.rings.covariance import unpack, width

Doubles: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """The count, sums and sums of products of some features over all rows of a join.

    >>> row = np.array([2.0, 5.0, 7.0, 13.0, 17.0, 25.0])  # a: 2 and 3; b: 4 and 3
    >>> moments = Moments.of_row(("a", "b"), row)
    >>> moments.mean
    array([2.5, 3.5])
    >>> moments.centred()
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])

    Parameters
    ----------
    features
        The names of the features, in the order of the sums.
    count
        The number of rows.
    shifted_sums, shifted_cofactor
        The sums of (x - shift), and of the products of any two of them, as a full symmetric matrix.
    shift
        What was subtracted from each feature before it was summed; 0 by default.
    """

    features: tuple[str, ...]
    count: float
    shifted_sums: Doubles
    shifted_cofactor: Doubles
    shift: Doubles = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        m = len(self.features)
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "shifted_sums", np.asarray(self.shifted_sums, np.float64))
        object.__setattr__(self, "shifted_cofactor", np.asarray(self.shifted_cofactor, np.float64))
        object.__setattr__(self, "shift", np.asarray(self.shift if len(self.shift) else np.zeros(m), np.float64))
        twice = sorted({name for name in self.features if self.features.count(name) > 1})
        if twice:
            raise SchemaError(
                f"moments have {listed(twice)} more than once", way_out="give every feature a name of its own"
            )
        shapes = self.shifted_sums.shape, self.shifted_cofactor.shape, self.shift.shape
        if shapes != ((m,), (m, m), (m,)):
            raise SchemaError(
                f"the moments of {m} features were given sums, products and shifts of shapes {shapes}",
                way_out=f"give them the shapes {((m,), (m, m), (m,))}",
            )

    @classmethod
    def of_row(cls, features: Sequence[str], row: Doubles, shift: Doubles | None = None) -> Moments:
        """Read the moments from one payload of the covariance ring."""
        m = len(features)
        if row.shape != (width(m),):
            raise SchemaError(
                f"a payload of {row.size} numbers was given for {m} features",
                way_out=f"name the features that it was lifted from: {m} of them have {width(m)} numbers",
            )
        return cls(tuple(features), *unpack(row, m), np.zeros(m) if shift is None else shift)

    @property
    def sums(self) -> Doubles:
        """The sum of each feature."""
        total: Doubles = self.shifted_sums + self.count * self.shift
        return total

    @property
    def cofactor(self) -> Doubles:
        """The sum of the products of any two features."""
        crossed = np.outer(self.shift, self.shifted_sums)
        total: Doubles = self.shifted_cofactor + crossed + crossed.T + self.count * np.outer(self.shift, self.shift)
        return total

    @property
    def mean(self) -> Doubles:
        """The mean of each feature."""
        self._need_rows()
        mean: Doubles = self.shift + self.shifted_sums / self.count
        return mean

    def centred(self) -> Doubles:
        """Return the sum of (x - mean of x) (y - mean of y) for any two features, without shifting back first."""
        self._need_rows()
        # The difference is taken in extended precision where there is one, so that it adds no error of its own.
        sums = self.shifted_sums.astype(np.longdouble)
        centred = (self.shifted_cofactor - np.outer(sums, sums) / self.count).astype(np.float64)
        np.fill_diagonal(centred, np.maximum(np.diagonal(centred), 0.0))
        return centred

    def correlation(self) -> Doubles:
        """Return the correlation of any two features; NaN for a feature that does not vary."""
        centred = self.centred()
        spread = np.sqrt(np.diagonal(centred))
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation: Doubles = np.clip(centred / np.outer(spread, spread), -1.0, 1.0)
        np.fill_diagonal(correlation, np.where(spread > 0, 1.0, np.nan))
        return correlation

    def ranking(self, label: str) -> list[tuple[str, float]]:
        """Rank the other features by the size of their correlation with a label; those that do not vary come last.

        >>> table = np.array([[1.0, 2, 3], [1, 3, 2], [-1, -2, -4]])
        >>> moments = Moments(("x", "y", "z"), 3, table.sum(axis=1), table @ table.T)
        >>> [(name, round(correlation, 4)) for name, correlation in moments.ranking("x")]
        [('z', -0.982), ('y', 0.5)]
        """
        whole = self.select([label, *(name for name in self.features if name != label)])
        with_label = whole.correlation()[0, 1:].tolist()
        found = list(zip(whole.features[1:], with_label, strict=True))
        return sorted(found, key=lambda pair: -1.0 if np.isnan(pair[1]) else abs(pair[1]), reverse=True)

    def select(self, features: Sequence[str]) -> Moments:
        """Restrict the moments to some features, in the order given."""
        at = {name: i for i, name in enumerate(self.features)}
        unknown = [name for name in features if name not in at]
        if unknown:
            raise SchemaError(
                f"there is no feature {listed(unknown)} in these moments", way_out=instead(unknown, self.features)
            )
        chosen = np.array([at[name] for name in features], np.intp)
        return Moments(
            tuple(features),
            self.count,
            self.shifted_sums[chosen],
            self.shifted_cofactor[np.ix_(chosen, chosen)],
            self.shift[chosen],
        )

    def _need_rows(self) -> None:
        if not self.count > 0:
            raise NotEnoughDataError(
                f"there are no rows to learn from: the count is {self.count:g}",
                way_out="insert rows that join first; a filter or a key that never matches also leaves nothing",
            )


def listed(names: Sequence[str]) -> str:
    """Quote names and put commas between them."""
    return ", ".join(map(repr, names))


def instead(wrong: Sequence[str], known: Sequence[str]) -> str:
    """Return a hint: the known names that an unknown one resembles."""
    near = [match for name in wrong for match in get_close_matches(name, known, n=2, cutoff=0.5)]
    if near:
        return f"did you mean {listed(list(dict.fromkeys(near)))}?"
    return f"there are {listed(known)}" if known else "there are none"
