"""Programs that run in processes of their own, without each starting Python and Java anew.

A server imports Headrace and Spark once, and forks for every program that it is asked to run. The fork uses the JVM and
the SparkContext of the test that asks, in a Spark session of its own; nothing that it does can stop them. So a child
starts in a fraction of a second where a process with a JVM takes five, and it can be killed like any other.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, java_import
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]


@dataclass
class Child:
    """A program that runs in a fork: its output goes to files, so that it is there even when the process is killed."""

    server: Forks
    pid: int
    stdout: Path
    stderr: Path

    def wait(self, timeout: float = 240) -> int:
        """The exit code, negative for the number of the signal that ended it."""
        return self.server.exit_code(self.pid, timeout)

    def first_lines(self, count: int = 1, timeout: float = 120) -> list[str]:
        """The first lines that it prints; fewer if it ends before."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            lines = self.stdout.read_text().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            if len(whole) >= count or self.server.has_ended(self.pid):
                return whole[:count]
            time.sleep(0.005)
        raise TimeoutError(self.stderr.read_text()[-4000:])


class Forks:
    """The server, for one test run, and the JVM that its children use."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._parameters = gateway.gateway_parameters
        self._folder = folder
        self._count = 0
        self._codes: dict[int, int] = {}
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, *arguments: str, cwd: Path = ROOT) -> Child:
        """Start `python ARGUMENTS`: a file with its arguments, or -c with a program."""
        self._count += 1
        out, err = (self._folder / f"{self._count}.{name}" for name in ("out", "err"))
        asked = {"arguments": arguments, "cwd": str(cwd), "stdout": str(out), "stderr": str(err)}
        asked |= {"port": self._parameters.port, "secret": self._parameters.auth_token, "env": dict(os.environ)}
        out.touch()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            said = self._read(60)
            if "started" in said:
                return Child(self, said["started"], out, err)

    def run(self, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        child = self.start(*arguments, cwd=cwd)
        code = child.wait()
        return subprocess.CompletedProcess(arguments, code, child.stdout.read_text(), child.stderr.read_text())

    def exit_code(self, pid: int, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while pid not in self._codes:
            self._read(deadline - time.monotonic())
        return self._codes[pid]

    def has_ended(self, pid: int) -> bool:
        assert self._process.stdout is not None
        while pid not in self._codes and select.select([self._process.stdout], [], [], 0)[0]:
            self._read(1)
        return pid in self._codes

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _read(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], max(0.0, timeout))[0]:
            raise TimeoutError("the server of forks does not answer")
        line = b""
        while not line.endswith(b"\n"):  # byte by byte, so that `select` sees all that is left
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                raise EOFError("the server of forks has ended")
            line += byte
        said: dict[str, Any] = json.loads(line)
        if "ended" in said:
            self._codes[said["ended"]] = said["code"]
        return said


def attach(port: int, secret: str) -> SparkSession:
    """Use a JVM and a SparkContext that another process started, in a session of its own."""
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    for name in (
        "org.apache.spark.SparkConf",
        "org.apache.spark.api.java.*",
        "org.apache.spark.api.python.*",
        "org.apache.spark.sql.*",
        "org.apache.spark.sql.hive.*",
        "scala.Tuple2",
    ):
        java_import(gateway.jvm, name)
    java_context = gateway.jvm.JavaSparkContext.fromSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    session = SparkSession(context).newSession()
    SparkSession._instantiatedSession = session
    gateway.jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for one in (SparkContext, SparkSession):
        one.stop = lambda self: None  # type: ignore[method-assign]
    return session


def serve(lines: int, told: int) -> None:
    """Fork for every line that is asked, and say when a child started and how it ended."""
    import headrace.cli.main
    import headrace.engine.engine
    import headrace.sources  # noqa: F401

    children: set[int] = set()
    pending = b""
    while True:
        ready = select.select([lines], [], [], 0.01 if children else None)[0]
        if ready:
            more = os.read(lines, 1 << 16)
            if not more:
                break
            pending += more
            *asked, pending = pending.split(b"\n")
            for line in asked:
                pid = os.fork()
                if not pid:
                    os.close(lines)
                    os.close(told)
                    os._exit(_child(json.loads(line)))
                children.add(pid)
                os.write(told, json.dumps({"started": pid}).encode() + b"\n")
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.discard(pid)
                os.write(told, json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def _child(asked: dict[str, Any]) -> int:
    """Run one program as `python` would."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.chdir(asked["cwd"])
    os.environ.update(asked["env"])
    try:
        attach(asked["port"], asked["secret"])
        code = _run(asked["arguments"])
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # temporary folders are removed as they would be
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def _run(arguments: Sequence[str]) -> int:
    first, *rest = arguments
    program = rest.pop(0) if first == "-c" else None
    sys.argv = [first, *rest]
    sys.path.insert(0, str(Path(first).parent) if program is None else "")
    try:
        if program is None:
            runpy.run_path(first, run_name="__main__")
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as left:
        if left.code is not None and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
            return 1
        return left.code or 0
    return 0


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)  # what a child prints by accident is no answer
    serve(0, answers)
