"""What is asked of a file system elsewhere, and what may go wrong there.

There are no folders, no locks and no renames here: a file is put whole, by one operation. The only operation that
decides anything is `put_new`, of which one succeeds per name, whoever else tries at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from headrace.errors import StorageError


class Elsewhere(Protocol):
    """The files below one URL. Names are relative to it; what fails raises OSError."""

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file, in the place of one that has the name; when this returns, it is durable."""
        ...

    def put_new(self, name: str, content: bytes) -> None:
        """Write a file; raises FileExistsError if one has the name. Other errors do not tell whether it is written."""
        ...

    def get(self, name: str, into: IO[bytes]) -> None:
        """Copy the content of a file; raises FileNotFoundError if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, which need not be there."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        ...

    def is_empty(self) -> bool:
        """Whether there is no file at all."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, those that are there."""
        ...


class FailedRequestError(OSError):
    """A request to a store failed, and was tried again to no avail; `strerror` says in one line why."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.strerror = said


class RefusedRequestError(FailedRequestError):
    """A store refused a request, so it has done nothing."""


class UnknownOutcomeError(FailedRequestError):
    """It is not known whether a file was written, and it may still be written later."""


READ_AGAIN = "see to the connection and to the rights of whoever asks, and try again: nothing was changed"
"""What to do about a request that failed, where nothing was to be written."""

Options = Mapping[str, str]
"""Where a store is and who asks, beside what its library finds in the environment; it may hold secrets."""


def said(error: BaseException) -> str:
    """The first line of an error of a library; those that follow are for its authors."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def needs(what: str, extra: str, scheme: str) -> StorageError:
    """An error for a library that is not installed."""
    return StorageError(
        f"locations of {scheme}:// need the Python package {what}, which is not installed",
        way_out=f"install it, with: pip install 'headrace[{extra}]', here and where Spark's workers run",
    )


def opened(url: str, options: Options) -> Elsewhere:
    """The files below a URL; makes no request yet."""
    opener = SCHEMES.get(url.partition("://")[0])
    if opener is None:
        raise StorageError(
            f"{url} is a URL, of a kind that Headrace does not know",
            way_out=f"give a path, of a file system that all nodes have mounted, or a URL of {_known()}",
        )
    return opener(url, options)


def _known() -> str:
    *first, last = (f"{scheme}://" for scheme in SCHEMES)
    return f"{', '.join(first)} or {last}"


def _objects(url: str, options: Options) -> Elsewhere:
    from headrace.remote.objects import Objects

    return Objects(url, options)


def _hadoop(url: str, options: Options) -> Elsewhere:
    from headrace.remote.hadoop import Hadoop

    return Hadoop(url)


SCHEMES: dict[str, Callable[[str, Options], Elsewhere]] = {
    **dict.fromkeys(("s3", "s3a", "gs"), _objects),
    "hdfs": _hadoop,
}
"""The kinds of URLs that a location may have."""
