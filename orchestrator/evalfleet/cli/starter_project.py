"""The files of `orchestrate init`: a project that runs as it is, without any key or network."""

from __future__ import annotations

from collections.abc import Mapping

AGENT = '''"""The agent under test; call yours instead. It returns what it did, and declares what of it can be seen."""

from evalfleet import (
    Coverage,
    Message,
    OperationFinished,
    OperationStarted,
    Role,
    Turn,
    TurnInput,
    agent,
    complete,
    unavailable,
)

SKY = {"Brooklyn": "sunny", "Queens": "cloudy"}


@agent(
    coverage=Coverage(
        messages=complete,
        actions=complete,
        events=complete,
        status=complete,
        data=complete,
        usage=unavailable("no model is called"),
    )
)
async def weather_agent(turn: TurnInput, ctx) -> Turn:
    city = next((name for name in SKY if name in turn.text), None)
    if city is None:
        return Turn(reply="Which city do you mean?")
    return Turn(
        events=(
            OperationStarted("call-1", "get_weather", {"city": city}),
            OperationFinished("call-1", output={"sky": SKY[city]}),
            Message(Role.ASSISTANT, f"It is {SKY[city]} in {city}."),
        )
    )
'''

EVAL = """from evalfleet import T, define_eval, includes, json_match, tool_match


@define_eval(description="Looks the weather up instead of guessing it", tags=["smoke"])
async def brooklyn(t: T) -> None:
    turn = await t.send("What's the weather like in Brooklyn today?")
    turn.succeeded()
    turn.called_tool(tool_match("get_weather", input=json_match({"city": "Brooklyn"})).exactly(1))
    t.check(t.reply, includes("sunny"))
"""

EXPERIMENT = """schema_version: 1
name: weather
evals:
  select: [weather]
repetitions: 3
arms:
  mine:
    adapter: python
    entry: my_agent:weather_agent
accept:
  pass_rate: {min: 1.0}
"""

FILES: Mapping[str, str] = {
    "my_agent.py": AGENT,
    "evals/weather/brooklyn.eval.py": EVAL,
    "experiment.yaml": EXPERIMENT,
}
