from evalfleet import T, define_eval, includes


@define_eval(description="Refunds an order once and deletes nothing", tags=["support"])
async def refund(t: T) -> None:
    turn = await t.send("Please refund order 1042.")
    turn.succeeded()
    turn.called_tool("refund_order")
    turn.not_called_tool("delete_order")
    t.check(turn.reply, includes("refunded"))
    t.max_tokens(500).optional()
