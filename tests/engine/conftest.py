"""Says at the end of a run what its simulated crashes came to."""

from __future__ import annotations

import pytest
from tests.engine import crash_counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if crash_counts.COUNTED:
        terminalreporter.section("simulated crashes")
        terminalreporter.write_line(crash_counts.said())
