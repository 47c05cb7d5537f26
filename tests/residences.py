"""Whether every entry of a location lies where it may: in the bucket that a step in one pass would look for it in."""

from __future__ import annotations

import headrace as hr
from headrace.relation.residence import Residence, first_word
from headrace.runtime.log import RECENT
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import table_arrangement, view_arrangement


def misplaced(engine: hr.Engine) -> list[str]:
    """Say of each arrangement with entries in a wrong bucket which it is."""
    snapshot, root = engine._store.snapshot, str(engine._store.location.root)
    residences = {table_arrangement(name): Residence(engine.buckets, first_word) for name in engine.tables}
    for name, view in engine._catalogue.views.items():
        way = view.kernel.in_one_pass
        if way is not None:
            residences |= {view_arrangement(name, part): residence for part, residence in way.residences.items()}
    wrong = []
    for name, residence in residences.items():
        for bucket, state in snapshot.arrangements.get(name, {}).items():
            for run in OPEN.opened(root, state):
                found = run._buckets if bucket == RECENT else bucket
                if not (residence.of(run.words) == found).all():
                    wrong.append(f"{name}, bucket {bucket}")
    return wrong
