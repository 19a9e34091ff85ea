from evalfleet import T, define_eval, includes, json_match, tool_match


@define_eval(description="Looks an order up once and remembers it", tags=["orders", "smoke"])
async def order_status(t: T) -> None:
    first = await t.send("Where is my order 1042?")
    first.succeeded()
    first.called_tool(tool_match("find_order", input=json_match({"number": "1042"})).exactly(1))
    t.check(first.reply, includes("Thursday"))

    second = await t.send("And what is in it?")
    second.used_no_tools()
    t.check(second.reply, includes("kettle")).label("names what is in it")
    t.max_tokens(60)
