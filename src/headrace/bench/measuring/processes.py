"""What a process and all that it has started take of the machine: memory, descriptors, threads."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Taken:
    """What one process takes: `private` are the bytes of its memory that are no file's."""

    pid: int
    command: str
    private: int
    threads: int
    descriptors: int


def tree(root: int) -> list[Taken]:
    """What a process and its descendants take, the process itself first; those that end meanwhile are left out."""
    children, found, todo = children_of(), [], [root]
    while todo:
        pid = todo.pop(0)
        todo += children[pid]
        try:
            found.append(_taken(pid))
        except OSError:
            continue
    return found


def children_of() -> dict[int, list[int]]:
    """The processes that each process of the machine has started, by number."""
    found = defaultdict[int, list[int]](list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            found[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    return found


def _taken(pid: int) -> Taken:
    folder = Path(f"/proc/{pid}")
    status, command = (folder / "status").read_text(), (folder / "comm").read_text().strip()
    private, threads = _ANONYMOUS.search(status), _THREADS.search(status)
    return Taken(
        pid,
        command,
        1024 * int(private[1]) if private else 0,  # a process that has just ended has none
        int(threads[1]) if threads else 0,
        len(os.listdir(folder / "fd")),
    )
