from evalfleet import T, define_eval, includes, json_match, tool_match


@define_eval(description="Brooklyn weather query", tags=["weather"])
async def brooklyn(t: T) -> None:
    turn = await t.send("What's the weather like in Brooklyn today?")
    turn.succeeded()
    turn.called_tool(tool_match("get_weather", input=json_match({"city": "Brooklyn"})).exactly(1))
    t.check(turn.reply, includes("sunny"))
