from evalfleet import T, define_eval, excludes, includes, tool_match


@define_eval(description="Says so when there is no such order", tags=["orders"])
async def unknown_order(t: T) -> None:
    turn = await t.send("Where is my order 9999?")
    turn.called_tool(tool_match("find_order", status="failed"))
    t.check(turn.reply, includes("can't find")).label("admits it")
    t.check(turn.reply, excludes("arrives")).label("makes nothing up")
