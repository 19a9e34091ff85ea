"""JSON as text for programs."""

from __future__ import annotations

import json
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False)


def to_json(value: Any) -> str:
    """One JSON document on one line, ASCII only. Raises ValueError for NaN and infinities."""
    return _ENCODER.encode(value)
