"""Reading values back from the commit log: whatever is not as Headrace writes it is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from headrace.errors import CorruptFileError

P = ParamSpec("P")
T = TypeVar("T")

REPAIR = "`headrace repair LOCATION` goes back to the last state that is whole; or restore the location from a backup"


def from_log(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function that reads `what` from JSON raise CorruptFileError if the JSON is not as it should be."""

    def reading(read: Callable[P, T]) -> Callable[P, T]:
        @wraps(read)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
                raise CorruptFileError(
                    f"{what} in the log cannot be read: {type(error).__name__}: {error}", way_out=REPAIR
                ) from error

        return checked

    return reading
