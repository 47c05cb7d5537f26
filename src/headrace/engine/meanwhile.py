"""What this process does while it waits for the JVM: it loads the engine, and compiles the kernels."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TURN = 0.0005  # seconds until another thread that waits for Python's lock gets it; 0.005 is usual


class Meanwhile:
    """A thread that ends by itself, or between two steps of `compiling` when the process ends."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-meanwhile", daemon=True)

    def start(self) -> None:
        """Begin."""
        # The process must not end while LLVM is at work.
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """End; returns when what is being compiled is done."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        # Whatever goes wrong (a full disk), whoever needs a module or a kernel finds it out, and says so.
        with suppress(Exception), _yielding():
            import headrace.engine.engine  # noqa: F401
            from headrace.engine.compiling import compile_kernels

            compile_kernels(self._stopped.is_set)
        atexit.unregister(self.stop)


@contextmanager
def _yielding() -> Iterator[None]:
    """Let the thread that talks to the JVM have its turn soon: it does so thousands of times."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
