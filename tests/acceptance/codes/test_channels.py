"""Which channel an assertion depends on: with that one partial nothing is concluded, with any other one it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet import Channel
from tests.acceptance.codes.bodies import Body, evidence_of, submit, write_evals

if TYPE_CHECKING:
    from evalfleet.api.programmatic import CaseResult
    from tests.acceptance.cli.conftest import Orchestrate

#: One agent for each channel, complete but for that one.
AGENTS = """
from evalfleet import COMPLETE_COVERAGE, Channel, Turn, Usage, agent, partial

async def speaks(turn, ctx):
    return Turn(reply="yes", data={"a": 1}, usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.5))

for channel in Channel:
    globals()[channel] = agent(coverage=COMPLETE_COVERAGE.downgrade({channel: partial("lossy")}))(speaks)
"""

#: Assertions that look for what is not there, or for that nothing is: only all of the evidence can tell.
CHANNELS = {
    "status": ["turn.parked()", "t.check(turn.status, equals('waiting'))"],
    "actions": [
        "turn.called_tool('rm')",
        "turn.not_called_tool('rm')",
        "turn.tool_order('ls', 'rm')",
        "turn.used_no_tools()",
        "turn.max_tool_calls(3)",
        "turn.no_failed_actions()",
        "turn.called_subagent('critic')",
    ],
    "events": [
        "turn.event('compaction')",
        "turn.not_event('compaction')",
        "turn.event_order('compaction', 'message')",
        "turn.loaded_skill('sql')",
    ],
    "messages": [
        "turn.message_includes('no')",
        "t.check(t.reply, includes('no'))",
        "t.check(turn.message, includes('no'))",
    ],
    "usage": ["turn.max_tokens(100)", "turn.max_cost(1)", "t.check(turn.usage.input_tokens, equals(2))"],
    "data": ["t.check(turn.data, equals({'b': 1}))", "turn.output_matches({'required': ['b']})"],
}
ASSERTIONS = [(channel, assertion) for channel, assertions in CHANNELS.items() for assertion in assertions]


@pytest.fixture(scope="module")
def cases(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    """The case of each agent by the channel that it does not see whole."""
    project: Path = tmp_path_factory.mktemp("project")
    (project / "my_agents.py").write_text(AGENTS)
    lines = "\n".join(f"{assertion}.optional()" for _, assertion in ASSERTIONS)
    write_evals(project, "all", {"ASSERTIONS": Body(f"turn = await t.send('hello')\n{lines}")})
    arms = {channel.value: {"adapter": "python", "entry": f"my_agents:{channel}"} for channel in Channel}
    return {case.arm: case for case in evidence_of(orchestrate, submit(orchestrate, project, {"arms": arms}))}


@pytest.mark.parametrize(("channel", "assertion"), ASSERTIONS)
def test_an_assertion_depends_on_its_channel_alone(cases: dict[str, CaseResult], channel: str, assertion: str) -> None:
    assert set(cases) == set(CHANNELS) == {each.value for each in Channel}
    index = ASSERTIONS.index((channel, assertion))
    found = {partial: case.assertions[index].outcome for partial, case in cases.items()}
    assert found[channel].reason == f"coverage:{channel}=partial (lossy)"
    assert [partial for partial, outcome in found.items() if outcome.result == "unavailable"] == [channel]
