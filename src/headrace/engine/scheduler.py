"""The scheduler: does what is due by the clock, such as the triggers of views, one after the other.

A thread sleeps until something is due. Whatever a step does may change that, so every step wakes it up. A view
whose trigger fails says so itself (`View.problem`) and is tried again later; what else goes wrong is kept here, shown
in `Engine.status`, and raised by `Engine.stop`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headrace.errors import HeadraceError, StepFailedError
from headrace.thrifty.schedule import now

_LOG = logging.getLogger("headrace")
_PATIENCE = 0.05  # seconds until a scheduler that waits for a step looks whether it is stopped
_LONGEST = 3600.0  # seconds of sleep: the clock of the machine may be set
_PAUSE = 1.0  # seconds after an error


class Scheduler:
    """Does what is due by the clock, for one engine.

    Parameters
    ----------
    next_due : when something will be due, in microseconds since 1970; None if nothing will be by the clock alone.
    lock : whoever commits holds it.
    fire : does what is due.
    """

    def __init__(self, next_due: Callable[[], int | None], lock: threading.RLock, fire: Callable[[], object]) -> None:
        self._next = next_due
        self._lock = lock
        self._fire = fire
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._news = False
        self.trouble: Exception | None = None

    def wake(self) -> None:
        """Look again at what is due, because something has changed."""
        with self._changed:
            self._news = True
            if self._thread is None and not self._is_stopped and self._next() is not None:
                self._thread = threading.Thread(target=self._run, name="headrace-scheduler", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """Fire nothing more; returns when a trigger that is being fired has given its result."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def raise_trouble(self) -> None:
        """Raise what went wrong, once."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            if isinstance(trouble, HeadraceError):
                raise trouble
            raise StepFailedError(
                f"a trigger could not be fired: {trouble}", way_out="call refresh() on the view to see all of it"
            ) from trouble

    def _run(self) -> None:
        while True:
            try:
                with self._changed:
                    self._news = False
                    at = None if self._is_stopped else self._next()
                    if at is None:
                        self._thread = None
                        return
                    wait = min(_LONGEST, (at - now()) / 1e6)
                    if wait > 0:
                        self._changed.wait_for(lambda: self._news or self._is_stopped, wait)
                        continue
                self._attempt()
            except Exception as error:
                self._met(error)

    def _met(self, error: Exception) -> None:
        """Keep an error until somebody asks, and wait a little before the next attempt."""
        self.trouble = error
        _LOG.warning("triggers that are due could not be fired; they are tried again: %s", error)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, _PAUSE)

    def _attempt(self) -> None:
        while not self._lock.acquire(timeout=_PATIENCE):
            if self._is_stopped:
                return
        try:
            if not self._is_stopped:
                self._fire()
                self.trouble = None
        finally:
            self._lock.release()
