from evalfleet import T, define_eval, includes


@define_eval(description="Says what it was told")
async def checkout(t: T) -> None:
    turn = await t.send("two mugs")
    turn.succeeded()
    t.check(turn.reply, includes("two mugs"))
