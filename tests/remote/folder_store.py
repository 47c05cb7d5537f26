"""A store that is a folder, with requests that fail before or after they have had their effect."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from headrace.remote.store import FailedRequestError


class FolderStore:
    """Does what a store does, at once and for everybody; counts what it was asked, and fails where it is told to.

    Parameters
    ----------
    fails : the numbers of the requests that fail.
    after : whether these have had their effect: the answer is lost.
    """

    def __init__(self, folder: Path, fails: frozenset[int] = frozenset(), *, after: bool = False) -> None:
        self.folder = folder
        self.fails = fails
        self.after = after
        self.asked: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes | Path) -> None:
        with self._request("put", name):
            partial = self._partial(name, content)
            os.replace(partial, self.folder / name)

    def put_new(self, name: str, content: bytes) -> None:
        with self._request("put_new", name):
            partial = self._partial(name, content)
            try:
                os.link(partial, self.folder / name)
            finally:
                partial.unlink()

    def get(self, name: str, into: IO[bytes]) -> None:
        with self._request("get", name), (self.folder / name).open("rb") as file:
            shutil.copyfileobj(file, into)

    def names(self, folder: str) -> list[str]:
        with self._request("names", folder):
            above = self.folder / folder
            found = [path for path in above.rglob("*") if path.is_file() and not path.name.startswith(".")]
            return [str(path.relative_to(above)) for path in found]

    def has(self, name: str) -> bool:
        with self._request("has", name):
            return (self.folder / name).exists()

    def is_empty(self) -> bool:
        with self._request("is_empty", ""):
            return not any(path.is_file() for path in self.folder.rglob("*"))

    def delete(self, names: Sequence[str]) -> None:
        with self._request("delete", ",".join(names)):
            for name in names:
                with suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    def _partial(self, name: str, content: bytes | Path) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{uuid.uuid4().hex}")
        partial.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        return partial

    def _request(self, kind: str, name: str) -> _Request:
        with self._lock:
            number = self.asked.total()
            self.asked[kind] += 1
            self.log.append((kind, name))
        return _Request(number in self.fails, self.after)


class _Request:
    def __init__(self, fails: bool, after: bool) -> None:
        self._fails, self._after = fails, after

    def __enter__(self) -> None:
        if self._fails and not self._after:
            raise FailedRequestError("the request was lost")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._fails and self._after and error is None:
            raise FailedRequestError("the answer was lost")
