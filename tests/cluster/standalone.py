"""A Spark standalone cluster on this machine: a master and two workers, each a process of its own.

Spark from pip has no scripts that start one, so its classes are started by `spark-class`. Each part can be killed and
started again. Nothing is shared between the processes but the file system, all listen on the loopback only, and
`cleaner` ends them when the tests end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
from tests.cluster.cleaner import MARK, marked

from headrace.runtime.java import ensure_java

ROOT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"  # small and quick to start
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Standalone:
    """A master and its workers.

    Parameters
    ----------
    folder : for logs, the master's own state, and the scratch space of workers.
    small_disk : give the last worker a scratch disk of a few megabytes, if this user may mount one.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, small_disk: bool = False) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self._cores = cores
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True)
        self._ports = _free_ports(1 + workers)
        self._started: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        self.scratch = [folder / f"worker{number}" for number in range(workers)]
        for scratch in self.scratch:
            scratch.mkdir()
        self.small_disk = self.scratch[-1] if small_disk and _mount(self.scratch[-1]) else None
        ensure_java()
        mounted = [str(self.small_disk)] if self.small_disk else []
        self._cleaner = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.cleaner", self.mark, *mounted],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        """The master, as drivers name it."""
        return f"spark://127.0.0.1:{self._ports[0]}"

    @property
    def environment(self) -> dict[str, str]:
        """What the environment of every process of the cluster has, drivers included."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        return {**inherited, MARK: self.mark, "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self) -> None:
        """Start all of it, and wait until the workers are there."""
        self.start_master()
        for number in range(len(self._workers)):
            self.start_worker(number)
        self.wait_for(lambda: self._said("master", "Registering worker") >= len(self._workers), "workers")

    def start_master(self) -> None:
        """Start the master, at the same address each time; what it knew it reads from its folder."""
        kept = self.folder / "master"
        options = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={kept} "
        options += "-Dspark.deploy.recoveryTimeout=5 -Dspark.worker.timeout=20 -Dspark.deploy.maxExecutorRetries=-1 "
        options += "-Dspark.master.rest.enabled=false"
        self._master = self._java("master", _MASTER, options, self._ports[0])

    def start_worker(self, number: int) -> None:
        """Start a worker, with a folder of its own."""
        scratch = self.scratch[number]
        extra = ["--cores", str(self._cores), "--memory", "1g", "--work-dir", str(scratch / "work"), self.url]
        # A tenth of the usual time to notice that the master is back.
        options = "-Dspark.worker.initialRegistrationRetries=20"
        started = self._java(f"worker{number}", _WORKER, options, self._ports[1 + number], *extra, scratch=scratch)
        self._workers[number] = started

    def start_driver(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a Python program with the environment of the cluster; its output goes to logs, line by line.

        Only drivers find the modules of the tests: machines of a cluster have what is installed on them.
        """
        with self.log(name).open("ab") as out, self.log(f"{name}.err").open("ab") as err:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env={**self.environment, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def log(self, name: str) -> Path:
        """The file with what a process prints."""
        return self._logs / f"{name}.log"

    @property
    def master(self) -> int:
        """The process of the master."""
        assert self._master is not None
        return self._master.pid

    def worker(self, number: int) -> int:
        """The process of a worker."""
        process = self._workers[number]
        assert process is not None
        return process.pid

    def executors(self) -> list[int]:
        """The JVMs of executors."""
        return [pid for pid, command in marked(self.mark).items() if _EXECUTOR in command and "java" in command]

    def python_workers(self) -> list[int]:
        """The Python processes that run tasks: executors start a daemon each, which forks them."""
        daemons = {pid for pid, command in marked(self.mark).items() if "pyspark.daemon" in command}
        return [pid for pid in daemons if parent(pid) in daemons]

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster has no {what}:\n{self.last_words()}")
            time.sleep(0.05)

    def last_words(self, most: int = 2500) -> str:
        """The ends of all logs."""
        logs = sorted(self._logs.iterdir(), key=lambda path: path.stat().st_mtime)
        return "\n".join(f"-- {log.name}\n{log.read_text(errors='replace')[-most:]}" for log in logs[-6:])

    def close(self) -> None:
        """End all processes."""
        assert self._cleaner.stdin is not None
        self._cleaner.stdin.close()
        self._cleaner.wait(60)
        for process in self._started:
            process.wait(30)
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        assert not marked(self.mark), "processes of the cluster are left"

    def _java(
        self, name: str, main: str, options: str, port: int, *arguments: str, scratch: Path | None = None
    ) -> subprocess.Popen[bytes]:
        given = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA} {options}"}
        if scratch is not None:
            given["SPARK_LOCAL_DIRS"] = str(scratch)
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), main, *where, *arguments],
                cwd=self.folder,
                env=self.environment | given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _said(self, name: str, words: str) -> int:
        return self.log(name).read_text(errors="replace").count(words)


@contextlib.contextmanager
def standalone(folder: Path, **options: bool | int) -> Iterator[Standalone]:
    """A cluster that runs, and that is gone afterwards."""
    cluster = Standalone(folder, **options)  # type: ignore[arg-type]
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def kill(*pids: int) -> None:
    """Kill processes at once, as a machine that loses its power would."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def parent(pid: int) -> int | None:
    """The process that a process belongs to; None if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _mount(folder: Path) -> bool:
    """Mount a disk of a few megabytes, if this user may."""
    asked = ["mount", "-t", "tmpfs", "-o", "size=24m", "headrace-test", str(folder)]
    try:
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
