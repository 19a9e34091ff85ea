"""What changed in an attempt's workdir, window by window, as indented lines."""

from __future__ import annotations

from collections.abc import Iterator

from evalfleet.assertions.attributed import patch_text, size_text
from evalfleet.model.changes import Attribution, Change, Window
from evalfleet.reports.figures import counted
from evalfleet.reports.layout import block
from evalfleet.reports.visible import cut, visible, visible_line


def change_lines(found: Attribution, *, patches: bool, limit: int | None) -> Iterator[str]:
    """The windows in their order with their paths, and with `patches` what differs, cut at `limit` characters."""
    yield "changes"
    for window in found.windows:
        yield from _window(window, patches, limit)
    if found.error is not None:
        yield from block("  ✗ not known: ", visible(found.error))


def _window(window: Window, patches: bool, limit: int | None) -> Iterator[str]:
    yield f"  {window.label} · {window.by.value} · {counted(len(window.changes), 'change')}"
    for ignored in (False, True):
        changes = [change for change in window.changes if change.ignored is ignored]
        if changes and ignored:
            yield "    left out by the project's .gitignore"
        indent = "      " if ignored else "    "
        for change in changes:
            yield f"{indent}{change.kind.value:<8} {visible_line(change.path)} ({_size(change)})"
            if patches and change.patch is not None and not change.binary:
                yield from block(f"{indent}  ", visible(cut(patch_text(change).rstrip("\n"), limit)))
    if window.omitted:
        yield f"    {counted(window.omitted, 'path')} beyond the limits not followed or not kept"
    for path in window.unread:
        yield f"    unreadable {visible_line(path)}"


def _size(change: Change) -> str:
    before, after = change.before, change.after
    sizes = [size_text(facts.size) for facts in (before, after) if facts is not None]
    parts = ["binary"] if change.binary else []
    parts.append(" → ".join(dict.fromkeys(sizes)))
    if before is not None and after is not None and before.mode != after.mode:
        parts.append(f"mode {before.mode:o} → {after.mode:o}")
    if change.patch is None:
        parts.append("content not kept")
    return ", ".join(parts)
