"""What an agent can do with the loan files of Harbour Lending."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from evalfleet import Cases, pack_tool
from evalfleet.model.tool import ToolRejected

DECISIONS = {"approve": "approved", "request": "waiting"}


class Item(BaseModel):
    """One thing that is asked for."""

    model_config = ConfigDict(extra="forbid")

    requirement: str
    reason: str = ""


@pack_tool
def list_requirements(cases: Cases) -> list[dict[str, Any]]:
    """What a complete file contains, and the date of today."""
    return [{**record, "today": cases.now[:10]} for record in cases.all("requirements")]


@pack_tool
def read_file(cases: Cases, file: Annotated[str, "the number of the file, such as F-001"]) -> dict[str, Any]:
    """A loan file with the numbers of its documents and the messages in it."""
    return {
        **cases.need("files", file),
        "documents": [record["id"] for record in cases.all("documents", file=file)],
        "messages": cases.all("messages", file=file),
    }


@pack_tool
def read_document(cases: Cases, document: str) -> dict[str, Any]:
    """One document."""
    return cases.need("documents", document)


@pack_tool(mutating=True)
def request_items(cases: Cases, file: str, items: list[Item], message: str) -> str:
    """Ask the applicant for what is missing, each with the reason, and set the file to waiting."""
    if not items:
        raise ToolRejected("name at least one requirement")
    cases.update("files", file, status=DECISIONS["request"])
    sent = {"id": cases.next_id("M"), "file": file, "direction": "out", "text": message}
    return cases.add("messages", sent)["id"]


@pack_tool(mutating=True)
def decide(cases: Cases, file: str, decision: str) -> str:
    """Decide a file: approve, or request when something is missing."""
    if decision not in DECISIONS:
        raise ToolRejected(f"a decision is one of {', '.join(DECISIONS)}")
    return cases.update("files", file, status=DECISIONS[decision])["status"]


@pack_tool(mutating=True)
def edit_document(cases: Cases, document: str, title: str) -> dict[str, Any]:
    """Correct the title of a document."""
    return cases.update("documents", document, title=title)


TOOLS = [list_requirements, read_file, read_document, request_items, decide, edit_document]
