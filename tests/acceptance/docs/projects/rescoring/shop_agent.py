from evalfleet import COMPLETE_COVERAGE, Turn, agent


@agent(coverage=COMPLETE_COVERAGE)
async def shop(turn, ctx) -> Turn:
    return Turn(reply="A refund takes three days.")
