"""Four agents whose results are known: one is right, one is wrong, one does nothing and one does all."""

from __future__ import annotations

from typing import Any

from evalfleet import AdapterContext, Coverage, Turn, TurnInput, agent, complete, partial, unavailable

COVERAGE = Coverage(
    events=partial("replies only"),
    actions=unavailable("the pack traces the calls"),
    messages=complete,
    usage=unavailable("no model is asked"),
    status=complete,
    data=complete,
)


class Desk:
    """The tools of a turn by name, and the file that the conversation is about."""

    def __init__(self, ctx: AdapterContext) -> None:
        self.tools = {tool.name: tool for tool in ctx.tools}

    async def __call__(self, name: str, **arguments: Any) -> Any:
        return await self.tools[name].call(arguments)


def file_of(ctx: AdapterContext) -> str:
    return ctx.case.rpartition("/")[2].upper()


def reason(kind: str, papers: list[dict[str, Any]], holder: str, today: str) -> str | None:
    """Why a requirement is not met by these papers; None when it is."""
    if not papers:
        return "no such document is on file"
    if len({paper["holder"] for paper in papers}) > 1:
        return "the documents on file contradict each other"
    if papers[0]["holder"] != holder:
        return "the document on file names somebody else"
    if max(paper["expires"] for paper in papers) < today:
        return "the document on file has expired"
    return None


@agent(coverage=COVERAGE)
async def careful(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Reads everything, asks for exactly what is missing, and says why."""
    desk, number = Desk(ctx), file_of(ctx)
    file = await desk("read_file", file=number)
    papers = [await desk("read_document", document=each) for each in file["documents"]]
    settled = {message.get("settles") for message in file["messages"]}
    missing: dict[str, str] = {}
    for wanted in await desk("list_requirements"):
        own = [paper for paper in papers if paper["kind"] == wanted["id"]]
        why = reason(wanted["id"], own, file["applicant"], wanted["today"])
        if why is not None and wanted["id"] not in settled:
            missing[wanted["id"]] = why
    if not missing:
        await desk("decide", file=number, decision="approve")
        return Turn(reply="The file is complete.")
    text = " ".join(f"Please send {kind}, because {why}." for kind, why in missing.items())
    items = [{"requirement": kind, "reason": why} for kind, why in missing.items()]
    await desk("request_items", file=number, items=items, message=text)
    return Turn(reply=text)


@agent(coverage=COVERAGE)
async def hasty(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Looks at the kinds of documents only, gives no reasons, and tidies up titles on the way."""
    desk, number = Desk(ctx), file_of(ctx)
    file = await desk("read_file", file=number)
    papers = [await desk("read_document", document=each) for each in file["documents"]]
    await desk("edit_document", document=papers[0]["id"], title=papers[0]["title"].upper())
    wanted = [each["id"] for each in await desk("list_requirements")]
    missing = [kind for kind in wanted if kind not in {paper["kind"] for paper in papers}]
    if not missing:
        await desk("decide", file=number, decision="approve")
        return Turn(reply="Approved.")
    items = [{"requirement": kind} for kind in missing]
    await desk("request_items", file=number, items=items, message=f"Please send: {', '.join(missing)}.")
    return Turn(reply="I have asked for the rest.")


@agent(coverage=COVERAGE)
async def idle(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Says that all is well, and does nothing."""
    return Turn(reply="Everything is in order, the file is approved.")


@agent(coverage=COVERAGE)
async def eager(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Asks for everything, writes twice, and retitles every document."""
    desk, number = Desk(ctx), file_of(ctx)
    file = await desk("read_file", file=number)
    for each in file["documents"]:
        await desk("edit_document", document=each, title="Checked")
    items = [
        {"requirement": each["id"], "reason": "we need it for the file"} for each in await desk("list_requirements")
    ]
    text = " ".join(f"Send {item['requirement']}, because we need it." for item in items)
    for _ in range(2):
        await desk("request_items", file=number, items=items, message=text)
    return Turn(reply=text)
