from evalfleet import COMPLETE_COVERAGE, Turn, agent


@agent(coverage=COMPLETE_COVERAGE)
async def adder(turn, ctx):
    first, second = map(int, turn.text.split("+"))
    return Turn(reply=str(first + second) if first >= ctx.flags["learnt_from"] else "I don't know.")
