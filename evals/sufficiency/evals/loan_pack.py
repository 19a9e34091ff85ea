"""The pack: which changes of a loan file are allowed, and how an agent's decision and requests are read."""

from __future__ import annotations

from evalfleet import Allowed, Assignment, CallReader, Collection, Operation, TaskPack

from .loan_tools import DECISIONS, TOOLS

#: The ids an applicant may be asked for, with the names they go by in a letter.
REQUIREMENTS = {
    "identity": ("identity card", "passport"),
    "tax_return": ("tax return",),
    "premises": ("lease", "rental contract"),
    "licence": ("trade licence",),
    "cover": ("liability insurance", "insurance policy"),
    "statements": ("bank statements",),
}


def allowed(assignment: Assignment) -> list[Allowed]:
    """The status of the file changes once; a letter goes out for each time that something is missing."""
    letters = sum(bool(point.unmet) for point in assignment.gold)
    outgoing = Allowed(
        collection="messages", operation=Operation.ADDED, match={"direction": "out"}, max=max(letters, 1)
    )
    status = Allowed(collection="files", operation=Operation.UPDATED, fields=frozenset({"status"}), min=1)
    return [status, outgoing]


PACK = TaskPack(
    name="loans",
    collections=[
        Collection("files", ignored=frozenset({"seen_at"})),
        Collection("documents", unordered=frozenset({"marks"})),
        Collection("messages"),
        Collection("requirements"),
    ],
    tools=TOOLS,
    policy=allowed,
    requirements=REQUIREMENTS,
    decisions=tuple(DECISIONS),
    reader=CallReader(decides="decide", requests="request_items", asking="request"),
)
