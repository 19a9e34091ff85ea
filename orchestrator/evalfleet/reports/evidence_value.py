"""An attempt's whole evidence as a JSON value, for programs; also what JSON has no word for is kept readable.

A float that is no number is written `{"$number": "nan"}`, bytes `{"$base64": "…"}`; what nobody reported is absent.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from evalfleet.model.changes import Attribution
from evalfleet.model.events import MISSING
from evalfleet.model.report import AttemptDetail
from evalfleet.reports.json_report import attempt_value

#: The types of most of what evidence consists of, by which copying is twice as fast.
_AS_IT_IS = frozenset({str, int, bool, type(None)})


def detail_value(detail: AttemptDetail) -> dict[str, Any]:
    """The attempt with its turns, assertions, judge calls, changes, attachments and diagnostics, as produced."""
    return {
        **attempt_value(detail.view, text=True),
        "turns": plain(detail.turns),
        "assertions": plain(detail.assertions),
        "judge_calls": plain(detail.judge_calls),
        "diagnostics": list(detail.diagnostics),
        "sandbox": plain(detail.sandbox),
        "changes": None if detail.attribution is None else _changes(detail.attribution),
        "attachments": plain(detail.attachments),
        "basis": plain(detail.basis),
        "kept_because": detail.kept_because,
    }


def _changes(found: Attribution) -> dict[str, Any]:
    """The windows with their patches as text where they are UTF-8; `gap` is why the agent's may not be all."""
    value = plain(found)
    for window, own in zip(value["windows"], found.windows, strict=True):
        for change, one in zip(window["changes"], own.changes, strict=True):
            with contextlib.suppress(UnicodeDecodeError):
                change["patch"] = None if one.patch is None else one.patch.decode("utf-8")
    return {**value, "gap": found.gap}


def plain(value: Any) -> Any:
    """`value` as JSON: dataclasses become objects (events with their `type`), enums their values."""
    kind = cast("type[Any]", type(value))
    if kind in _AS_IT_IS:
        return value
    if kind is dict:
        return {
            key if type(key) is str else str(key): item if type(item) in _AS_IT_IS else plain(item)
            for key, item in cast("dict[Any, Any]", value).items()
        }
    if kind is list or kind is tuple:
        return [item if type(item) in _AS_IT_IS else plain(item) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$number": repr(value)}
    if isinstance(value, bytes):
        return {"$base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [plain(item) for item in cast("tuple[Any, ...]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    return str(value)


def _object(value: Any) -> dict[str, Any]:
    named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    fields = {name: plain(item) for name, item in named.items() if item is not MISSING}
    kind: Any = getattr(value, "type", None)
    return {"type": kind, **fields} if isinstance(kind, str) else fields
