"""An agent that fixes what it is told to, and leaves a log."""

from __future__ import annotations

from evalfleet import COMPLETE_COVERAGE, AdapterContext, Turn, TurnInput, Usage, sandbox_agent


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def coder(turn: TurnInput, ctx: AdapterContext) -> Turn:
    source = (await ctx.sandbox.read("price.py")).decode()
    await ctx.sandbox.write("price.py", source.replace("return base", "return base * (1 - discount)").encode())
    await ctx.sandbox.write("agent.log", b"fixed price.py\n")
    return Turn(reply="Fixed.", usage=Usage(input_tokens=0, output_tokens=0))
