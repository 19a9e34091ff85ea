from evalfleet import COMPLETE_COVERAGE, AdapterContext, Turn, TurnInput, Usage, agent


@agent(coverage=COMPLETE_COVERAGE)
async def clerk(turn: TurnInput, ctx: AdapterContext) -> Turn:
    tools = {tool.name: tool for tool in ctx.tools}
    parcel = await tools["read_parcel"].call({"parcel": "P-1"})
    missing = [name for name in ("invoice", "licence") if name not in parcel["papers"]]
    if missing:
        items = [{"requirement": name, "reason": "it is not among the papers"} for name in missing]
        text = " ".join(f"Please send the {name}, since it is missing." for name in missing)
        await tools["ask"].call({"parcel": "P-1", "items": items, "message": text})
    else:
        await tools["decide"].call({"parcel": "P-1", "decision": "release"})
    return Turn(reply="Done.", usage=Usage(input_tokens=1, output_tokens=1))
