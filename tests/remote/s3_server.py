"""A server that speaks S3, run by a Python that has moto: `python s3_server.py PORT`. Ends when its input does.

One request is answered at a time. So a conditional put is as atomic as that of S3, which moto's own checks are not.
Requests to `/-/` are for the tests: `/-/asked` counts requests by kind since the last such request, and `/-/fail/N`
has every N-th one fail from then on, in turn before and after it has had its effect.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Start = Callable[..., Any]


class Failing:
    """Passes requests on, counts them, and lets some fail."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.every = 0
        self.number = 0
        self.asked: Counter[str] = Counter()

    def __call__(self, asked: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = asked["PATH_INFO"]
        if path.startswith("/-/"):
            return self._told(path, start)
        self.asked[asked["REQUEST_METHOD"]] += 1
        self.number += 1
        fails = self.every and self.number % self.every == 0
        if fails and self.number // self.every % 2:
            return self._answered(start, "503 Service Unavailable", b"before")
        answer = b"".join(self.app(asked, start if not fails else lambda *_, **__: None))
        return self._answered(start, "500 Internal Server Error", b"after") if fails else [answer]

    def _told(self, path: str, start: Start) -> Iterable[bytes]:
        _, _, what, *rest = path.split("/")
        if what == "fail":
            self.every, self.number = int(rest[0]), 0
        body = json.dumps(self.asked).encode()
        self.asked.clear()
        return self._answered(start, "200 OK", body)

    def _answered(self, start: Start, status: str, body: bytes) -> Iterable[bytes]:
        start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]


def _until_the_end() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    from moto.server import DomainDispatcherApplication, create_backend_app  # here, as tests are collected without them
    from werkzeug.serving import run_simple

    threading.Thread(target=_until_the_end, daemon=True).start()
    app = Failing(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=False)
