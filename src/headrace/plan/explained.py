"""What all explanations of views have in common, whatever the strategy: they are plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Explained:
    """How a view is kept, as a value."""

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return plain
