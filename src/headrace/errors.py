"""Every error Headrace raises on purpose.

An error says what is wrong, where it is (table, column, view, file, rows) and what to do about it.
The last part is its own argument, `way_out`, so that no error can be written without one.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose."""

    def __init__(self, what: str, *, way_out: str) -> None:
        self.what = what
        self.way_out = way_out
        super().__init__(f"{what}\n  -> {way_out}")

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Python workers to the driver by pickle; keyword-only arguments need help.
        return (_rebuild, (type(self), self.what, self.way_out, self.__dict__))


def _rebuild(kind: type[HeadraceError], what: str, way_out: str, state: dict[str, object]) -> HeadraceError:
    error = kind.__new__(kind)
    HeadraceError.__init__(error, what, way_out=way_out)
    error.__dict__.update(state)
    return error


class SchemaError(HeadraceError):
    """A table, view or column definition that cannot be right."""


class BadRowsError(HeadraceError):
    """Rows of a change batch that were refused; nothing was written."""


class UnsupportedSQLError(HeadraceError):
    """SQL that Headrace cannot maintain; raised when the view is created, never later."""


class CorruptFileError(HeadraceError):
    """A file of the state that is damaged, truncated or missing."""


class StorageError(HeadraceError):
    """The location could not be read or written (disk full, permissions, another writer)."""


class ArithmeticOverflowError(HeadraceError):
    """An exact result that does not fit the SQL type of its column."""


class StepFailedError(HeadraceError):
    """A step that failed in Spark or in an expression; nothing was committed."""


class JavaNotFoundError(HeadraceError):
    """No Java that can run Spark was found on this machine."""


class PipelineError(HeadraceError):
    """A pipeline file that cannot be read as one; nothing of it was run."""


class VariableOrderError(HeadraceError):
    """A variable order that does not fit its query, or cannot be read; no view was made over it."""


class NotEnoughDataError(HeadraceError):
    """A model that has nothing to learn from, or that has not learnt yet."""
