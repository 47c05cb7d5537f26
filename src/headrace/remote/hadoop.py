"""HDFS, by `hdfs-native`, which speaks to the name node and the data nodes itself: it needs no Java and no libhdfs.

It reads Hadoop's configuration where HADOOP_CONF_DIR says that it is. A file is written under another name and renamed:
HDFS renames at once, and without `overwrite` never in the place of another file. (A file that is created without
`overwrite` has its name before it has its content, and a writer that dies in between would leave a torn record.)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from headrace.errors import StorageError
from headrace.remote.store import FailedRequestError, needs, said

_CHUNK = 8 << 20


class Hadoop:
    """The files below a folder of HDFS."""

    def __init__(self, url: str) -> None:
        try:
            from hdfs_native import Client, WriteOptions
        except ImportError as error:
            raise needs("hdfs-native", "hdfs", "hdfs") from error
        host, _, path = url.removeprefix("hdfs://").partition("/")
        if not path:
            raise StorageError(f"{url} names no folder", way_out="give one, as in hdfs://host:8020/state")
        self._root = f"/{path.strip('/')}"
        try:
            # Without a host it is the file system that Hadoop's configuration names.
            self._client = Client(f"hdfs://{host}") if host else Client()
        except Exception as error:  # the library raises errors of many kinds
            raise StorageError(
                f"{url} cannot be reached: {said(error)}",
                way_out="give the name node, as in hdfs://host:8020/state, or set HADOOP_CONF_DIR",
            ) from None
        self._new = WriteOptions(overwrite=False, create_parent=True)

    def put(self, name: str, content: bytes | Path) -> None:
        with self._written(name, content) as partial, _translated():
            self._client.rename(partial, self._path(name), overwrite=True)

    def put_new(self, name: str, content: bytes) -> None:
        with self._written(name, content) as partial, _translated():
            try:
                self._client.rename(partial, self._path(name), overwrite=False)
            except Exception:
                if self._has(name):
                    raise FileExistsError(name) from None
                raise

    def get(self, name: str, into: IO[bytes]) -> None:
        with _translated(missing=True), self._client.read(self._path(name)) as file:
            while chunk := file.read(_CHUNK):
                into.write(chunk)

    def names(self, folder: str) -> list[str]:
        above = self._path(folder)
        try:
            with _translated(missing=True):
                found = [one.path for one in self._client.list_status(above, recursive=True) if not one.isdir]
        except FileNotFoundError:
            return []
        names = (path[path.index(above) + len(above) :].lstrip("/") for path in found)
        return [name for name in names if not name.rpartition("/")[2].startswith(".")]

    def has(self, name: str) -> bool:
        with _translated():
            return self._has(name)

    def is_empty(self) -> bool:
        return not self.names("")

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError), _translated(missing=True):
                self._client.delete(self._path(name))

    @contextmanager
    def _written(self, name: str, content: bytes | Path) -> Iterator[str]:
        """A whole file of this content, under a name that nobody looks for; it is gone at the end unless renamed."""
        folder, _, last = self._path(name).rpartition("/")
        partial = f"{folder}/.{last}.{uuid.uuid4().hex}"
        with _translated(), self._client.create(partial, self._new) as out:
            if isinstance(content, bytes):
                out.write(content)
            else:
                with content.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        out.write(chunk)
        try:
            yield partial
        finally:
            with suppress(Exception):
                self._client.delete(partial)

    def _has(self, name: str) -> bool:
        try:
            self._client.get_file_info(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


@contextmanager
def _translated(*, missing: bool = False) -> Iterator[None]:
    """Turn the library's errors into those of a store; it may be expected that a file is missing."""
    try:
        yield
    except FileExistsError:
        raise
    except Exception as error:  # the library raises errors of many kinds
        if missing and isinstance(error, FileNotFoundError):
            raise
        raise FailedRequestError(said(error)) from None
