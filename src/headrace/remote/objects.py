"""Object stores (S3 and what speaks its language, Google Cloud Storage), by Apache Arrow's `object_store`.

The library looks for credentials where those of its store usually are: in the environment and the machine's metadata.
What Spark was told about `s3a` goes before that. It tries failed requests again, except where that could do harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headrace.errors import StorageError
from headrace.remote.store import FailedRequestError, Options, RefusedRequestError, needs, said

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CHUNK = 8 << 20
_RETRY: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}

FROM_ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT_URL_S3": "endpoint",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
"""Variables of the environment, and what the library calls them; of two that say the same, the last one counts."""
FROM_SPARK = {
    "spark.hadoop.fs.s3a.endpoint": "endpoint",
    "spark.hadoop.fs.s3a.endpoint.region": "region",
    "spark.hadoop.fs.s3a.access.key": "access_key_id",
    "spark.hadoop.fs.s3a.secret.key": "secret_access_key",
    "spark.hadoop.fs.s3a.session.token": "session_token",
}
"""Settings of Spark, and what the library calls them."""
_PATH_STYLE = "spark.hadoop.fs.s3a.path.style.access"
_TLS = "spark.hadoop.fs.s3a.connection.ssl.enabled"


def options_of(setting: Callable[[str], str | None]) -> Options:
    """What the environment of this process and Spark's settings say of S3, for tasks, whose environment is another."""
    found = {name: value for key, name in FROM_ENVIRONMENT.items() if (value := os.environ.get(key))}
    found |= {name: value for key, name in FROM_SPARK.items() if (value := setting(key))}
    if "endpoint" in found and "://" not in found["endpoint"]:
        found["endpoint"] = f"{'http' if setting(_TLS) == 'false' else 'https'}://{found['endpoint']}"
    if (path_style := setting(_PATH_STYLE)) is not None:
        found["virtual_hosted_style_request"] = "false" if path_style == "true" else "true"
    return found


class Objects:
    """The objects below a URL of a bucket."""

    def __init__(self, url: str, options: Options) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if not bucket:
            raise StorageError(f"{url} names no bucket", way_out=f"give one, as in {scheme}://bucket/state")
        self._url = url
        self._store = _opened(scheme, bucket, prefix.strip("/"), options)

    def put(self, name: str, content: bytes | Path) -> None:
        with _translated():
            self._store.put(name, content)

    def put_new(self, name: str, content: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

        with _translated():
            try:
                self._store.put(name, content, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                raise FileExistsError(name) from error
            except (PermissionDeniedError, UnauthenticatedError) as error:
                raise RefusedRequestError(said(error)) from None

    def get(self, name: str, into: IO[bytes]) -> None:
        with _translated(missing=True):
            for chunk in self._store.get(name).stream(min_chunk_size=_CHUNK):
                into.write(chunk)

    def names(self, folder: str) -> list[str]:
        with _translated():
            found = (one["path"] for chunk in self._store.list(folder) for one in chunk)
            return [path.removeprefix(f"{folder}/") for path in found]

    def has(self, name: str) -> bool:
        try:
            with _translated(missing=True):
                self._store.head(name)
        except FileNotFoundError:
            return False
        return True

    def is_empty(self) -> bool:
        with _translated():
            return not any(len(chunk) for chunk in self._store.list(chunk_size=1))

    def delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            with _translated(missing=True):
                self._store.delete(list(names))
        except FileNotFoundError:  # some stores stop at the first one that is not there
            for name in names:
                with suppress(FileNotFoundError), _translated(missing=True):
                    self._store.delete(name)


def _opened(scheme: str, bucket: str, prefix: str, options: Options) -> ObjectStore:
    try:
        from obstore.store import GCSStore, S3Store
    except ImportError as error:
        raise needs("obstore", "s3", scheme) from error
    if scheme == "gs":
        return GCSStore(bucket, prefix=prefix or None, retry_config=_RETRY)
    config: dict[str, Any] = dict(options)
    endpoint = config.get("endpoint")
    if endpoint:
        config.setdefault("region", "us-east-1")  # servers other than Amazon's have one region, and this is its name
    client: Any = {"allow_http": str(endpoint).startswith("http://")}
    return S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRY)  # type: ignore[arg-type]


@contextmanager
def _translated(*, missing: bool = False) -> Iterator[None]:
    """Turn the library's errors into those of a store; it may be expected that a file is missing."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (FileExistsError, RefusedRequestError):
        raise
    except (BaseError, OSError) as error:
        if missing and isinstance(error, FileNotFoundError):
            raise
        raise FailedRequestError(said(error)) from None
