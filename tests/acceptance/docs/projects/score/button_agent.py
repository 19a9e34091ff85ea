from dataclasses import replace

from evalfleet import COMPLETE_COVERAGE, AdapterContext, TurnInput, sandbox_agent, unavailable


@sandbox_agent(coverage=replace(COMPLETE_COVERAGE, usage=unavailable("no model is called")))
async def fixer(turn: TurnInput, ctx: AdapterContext) -> str:
    source = (await ctx.sandbox.read("button.py")).decode()
    await ctx.sandbox.write("button.py", source.replace("return False", "return True").encode())
    return "A pressed button said that it was not, because it always answered False."
