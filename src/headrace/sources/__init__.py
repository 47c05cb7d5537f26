"""Where changes come from: files that can be replayed, each batch exactly once."""

from __future__ import annotations

from headrace.sources.update_form import TPCH_CODES
from headrace.sources.updates import UpdateFile, write_updates

__all__ = ["TPCH_CODES", "UpdateFile", "write_updates"]
