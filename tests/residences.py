"""Whether every entry of a location lies where it may: in the bucket that a step in one pass would look for it in."""

from __future__ import annotations

import headrace as hr
from headrace.engine.reader import Reader
from headrace.relation.residence import Residence, first_word
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import table_arrangement, view_arrangement
from headrace.runtime.record import RECENT


def misplaced(engine: hr.Engine) -> list[str]:
    """Say of each arrangement with entries in a wrong bucket which it is."""
    with engine._store.reader() as reader:  # merges beside the steps would remove files otherwise
        return _misplaced(engine, reader)


def _misplaced(engine: hr.Engine, reader: Reader) -> list[str]:
    residences = {table_arrangement(name): Residence(engine.buckets, first_word) for name in engine.tables}
    kernels = engine._catalogue.kernels | {name: one.kernel for name, one in engine._catalogue.shared.items()}
    for name, kernel in kernels.items():
        way = kernel.in_one_pass
        if way is not None:
            residences |= {view_arrangement(name, part): residence for part, residence in way.residences.items()}
    wrong = []
    for name, residence in residences.items():
        for bucket, state in reader.arrangements.get(name, {}).items():
            for run in OPEN.opened(reader.root, state):
                found = run._buckets if bucket == RECENT else bucket
                if not (residence.of(run.words) == found).all():
                    wrong.append(f"{name}, bucket {bucket}")
    return wrong
