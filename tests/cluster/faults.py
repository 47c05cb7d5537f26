"""What can happen to a cluster, at a moment that the test draws."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

from tests.cluster.standalone import kill, parent
from tests.cluster.trial import Trial

Fault = Callable[[Trial, random.Random], bool]


def executor(trial: Trial, rng: random.Random) -> bool:
    """Kill the JVM of an executor, with all tasks in it and the shuffled data that it holds."""
    return _kill_one(rng, trial.cluster.executors)


def python_worker(trial: Trial, rng: random.Random) -> bool:
    """Kill a Python process that may just be running a task."""
    return _kill_one(rng, trial.cluster.python_workers)


def python_daemon(trial: Trial, rng: random.Random) -> bool:
    """Kill the daemon that forks Python processes."""
    return _kill_one(rng, lambda: [pid for pid in {*map(parent, trial.cluster.python_workers())} if pid is not None])


def worker(trial: Trial, rng: random.Random) -> bool:
    """Kill a worker, whose executor then ends as well, and start it again after a while."""
    number = rng.randrange(len(trial.cluster.scratch))
    kill(trial.cluster.worker(number))
    time.sleep(rng.uniform(0, 2))
    trial.cluster.start_worker(number)
    return True


def master(trial: Trial, rng: random.Random) -> bool:
    """Kill the master and start it again: the application goes on, and it is told of it."""
    kill(trial.cluster.master)
    time.sleep(rng.uniform(0, 1))
    trial.cluster.start_master()
    return True


def driver(trial: Trial, rng: random.Random) -> bool:
    """Kill the driver: its Python process, whose JVM then ends as well; the next one goes on where it was."""
    kill(trial.driver.pid)
    trial.restart()
    return True


def driver_jvm(trial: Trial, rng: random.Random) -> bool:
    """Kill the JVM of the driver; the Python process is left with nothing that it could run, and is replaced."""
    kill(*trial.driver_jvms())
    time.sleep(rng.uniform(0, 1))  # what it does then must not harm
    kill(trial.driver.pid)
    trial.restart()
    return True


def slow_executor(trial: Trial, rng: random.Random) -> bool:
    """Stop an executor for some seconds, so that Spark runs copies of its tasks elsewhere; then both go on."""
    pid = _one(rng, trial.cluster.executors)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(2, 6))
        os.kill(pid, signal.SIGCONT)
    return True


def full_disk(trial: Trial, rng: random.Random) -> bool:
    """Fill the scratch disk of one worker for some seconds."""
    folder = trial.cluster.small_disk
    if folder is None:
        return False
    filler = folder / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        time.sleep(rng.uniform(2, 5))
    finally:
        filler.unlink(missing_ok=True)
    return True


# How often each is drawn: those that a cluster meets every day, and that cost least, more often.
FAULTS: dict[Fault, int] = {
    executor: 4,
    python_worker: 6,
    python_daemon: 2,
    worker: 2,
    master: 1,
    driver: 3,
    driver_jvm: 1,
    slow_executor: 2,
    full_disk: 2,
}


def drawn_faults(rng: random.Random, count: int) -> list[Fault]:
    """Faults in a random order, the rare kinds among the first so that each is tried even in a short run."""
    first = rng.sample(list(FAULTS), len(FAULTS))[:count]
    return first + rng.choices(list(FAULTS), list(FAULTS.values()), k=max(0, count - len(first)))


def _kill_one(rng: random.Random, find: Callable[[], list[int]]) -> bool:
    pid = _one(rng, find)
    if pid is not None:
        kill(pid)
    return pid is not None


def _one(rng: random.Random, find: Callable[[], list[int]]) -> int | None:
    """One of some processes; after another fault it may take a moment until there is one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if pids := find():
            return rng.choice(sorted(pids))
        time.sleep(0.05)
    return None
