"""Windows and changes as lists for JSON, and back, exactly. PURE. Fields are only ever added at the end of a list."""

from __future__ import annotations

import base64
from typing import Any

from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, FileFacts, Window


def encode_attribution(found: Attribution) -> list[Any]:
    return [[_window(window) for window in found.windows], found.error]


def read_attribution(found: list[Any]) -> Attribution:
    windows, error = found[:2]
    return Attribution(windows=tuple([_read_window(window) for window in windows]), error=error)


def _window(window: Window) -> list[Any]:
    return [
        window.label,
        window.by,
        window.before,
        window.after,
        [_change(change) for change in window.changes],
        window.omitted,
        window.unread,
    ]


def _read_window(window: list[Any]) -> Window:
    label, by, before, after, changes, omitted, unread = window[:7]
    return Window(
        label=label,
        by=ChangedBy(by),
        before=before,
        after=after,
        changes=tuple([_read_change(change) for change in changes]),
        omitted=omitted,
        unread=tuple(unread),
    )


def _change(change: Change) -> list[Any]:
    return [
        change.path,
        change.kind,
        _facts(change.before),
        _facts(change.after),
        change.binary,
        change.ignored,
        _patch(change.patch),
    ]


def _read_change(change: list[Any]) -> Change:
    path, kind, before, after, binary, ignored, patch = change[:7]
    return Change(
        path=path,
        kind=ChangeKind(kind),
        before=_read_facts(before),
        after=_read_facts(after),
        binary=binary,
        ignored=ignored,
        patch=_read_patch(patch),
    )


def _facts(facts: FileFacts | None) -> list[Any] | None:
    return None if facts is None else [facts.mode, facts.size, facts.blob]


def _read_facts(facts: list[Any] | None) -> FileFacts | None:
    return None if facts is None else FileFacts(*facts[:3])


def _patch(patch: bytes | None) -> str | list[str] | None:
    """Text where it is UTF-8, which most patches are and which compresses; else base64 in a list."""
    if patch is None:
        return None
    try:
        return patch.decode("utf-8")
    except UnicodeDecodeError:
        return [base64.b64encode(patch).decode("ascii")]


def _read_patch(patch: str | list[str] | None) -> bytes | None:
    if patch is None:
        return None
    return patch.encode("utf-8") if isinstance(patch, str) else base64.b64decode(patch[0])
