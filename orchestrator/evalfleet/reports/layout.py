"""Text of several lines below a label."""

from __future__ import annotations

from collections.abc import Iterator


def block(label: str, text: str) -> Iterator[str]:
    """The lines of `text`, the first after `label`, the others indented as far."""
    indent = " " * len(label)
    for index, line in enumerate(text.split("\n") or [""]):
        yield f"{label if index == 0 else indent}{line}".rstrip()
