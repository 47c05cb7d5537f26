"""Every kind of view, steps of a million rows, streams and what users bring, on a cluster that nothing happens to."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.cluster import tally
from tests.cluster.kinds import PARTS
from tests.cluster.standalone import standalone
from tests.seeds import drawn

KINDS = Path(__file__).parent / "kinds.py"


@pytest.mark.cluster
@pytest.mark.timeout(0)
def test_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with standalone(tmp_path / "cluster", cores=2) as cluster:
        seed = str(drawn("cluster kinds", 1)[0])
        process, shown = cluster.start_driver("kinds", str(KINDS), cluster.url, str(home), seed), 0
        deadline = time.monotonic() + 1800
        while process.poll() is None and time.monotonic() < deadline:
            lines = cluster.log("kinds").read_text().splitlines()
            with capsys.disabled():
                for line in lines[shown:]:
                    print(line, flush=True)
            shown = len(lines)
            time.sleep(0.5)
        assert process.poll() == 0, cluster.log("kinds.err").read_text()[-5000:]
        counts = {
            name: count
            for line in cluster.log("kinds").read_text().splitlines()
            for name, count in json.loads(line).items()
        }
    assert PARTS.keys() <= counts.keys()
    tally.record({f"cluster, {name}": counts[name] for name in PARTS})
