"""What an adapter declares: six channels, three states, a reason where something is missing, and no fourth state."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.assertions.evidence import ScopeEvidence
from evalfleet.model.agent import agent, sandbox_agent
from evalfleet.model.coverage import (
    COMPLETE_COVERAGE,
    Channel,
    Coverage,
    CoverageEntry,
    CoverageState,
    complete,
    partial,
    unavailable,
    worst,
)
from evalfleet.model.definition import AgentDefinition
from evalfleet.model.events import EVENT_TYPES
from evalfleet.model.turn import TurnRecord
from evalfleet.plugins import adapter_factories

entries = st.sampled_from([complete, partial("a"), unavailable("b")])
coverages = st.builds(Coverage, **dict.fromkeys(Channel, entries))
RANK = list(CoverageState)


def test_six_channels_of_three_states() -> None:
    assert list(Channel) == ["events", "actions", "messages", "usage", "status", "data"]
    assert RANK == ["complete", "partial", "unavailable"]
    assert {COMPLETE_COVERAGE.entry(channel) for channel in Channel} == {complete}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (CoverageState.COMPLETE, "why"),
        (CoverageState.PARTIAL, None),
        (CoverageState.PARTIAL, " "),
        (CoverageState.UNAVAILABLE, ""),
    ],
)
def test_a_reason_stands_where_something_is_missing_and_nowhere_else(state: CoverageState, reason: str | None) -> None:
    with pytest.raises(ValueError, match="reason"):
        CoverageEntry(state, reason)


def test_every_channel_is_declared() -> None:
    declared: dict[str, Any] = dict.fromkeys(Channel, complete)
    for channel in Channel:
        with pytest.raises(TypeError):
            Coverage(**{name: entry for name, entry in declared.items() if name != channel})
        with pytest.raises(TypeError, match=f"coverage.{channel} must be complete"):
            Coverage(**{**declared, channel: None})


@pytest.mark.parametrize("declare", [agent, sandbox_agent])
def test_an_agent_declares_coverage_and_nothing_else_about_what_it_can_do(declare: Any) -> None:
    with pytest.raises(TypeError):
        declare()
    with pytest.raises(TypeError, match="all six channels"):
        declare(coverage={"events": "complete"})
    declared = declare(coverage=COMPLETE_COVERAGE)(lambda turn, ctx: "x")
    assert declared.sandboxed is (declare is sandbox_agent)
    assert {field.name for field in fields(AgentDefinition)} == {"target", "coverage", "sandboxed", "name"}


@pytest.mark.parametrize("name", sorted(adapter_factories()))
def test_no_adapter_takes_capabilities(name: str) -> None:
    assert "capabilities" not in adapter_factories()[name].options.model_fields


def test_evidence_is_what_turns_report_and_no_timing_is_among_it() -> None:
    assert {field.name for field in fields(ScopeEvidence)} == {
        "kind", "turns", "coverage", "status", "pending_requests", "seen",
    }  # fmt: skip
    told = [*EVENT_TYPES, *(field.name for field in fields(TurnRecord))]
    assert not [name for name in told if "span" in name or "trace" in name]


@given(declared=coverages, changes=st.dictionaries(st.sampled_from(list(Channel)), entries))
def test_a_turn_only_takes_back(declared: Coverage, changes: dict[Channel, CoverageEntry]) -> None:
    effective = declared.downgrade(changes)
    for channel in Channel:
        states = [declared.entry(channel).state, changes.get(channel, complete).state]
        assert effective.entry(channel).state is max(states, key=RANK.index)


@given(st.lists(coverages, max_size=4))
def test_a_scope_has_the_worst_of_its_turns(turns: list[Coverage]) -> None:
    found = worst(turns)
    for channel in Channel:
        states = [turn.entry(channel).state for turn in turns] or [CoverageState.COMPLETE]
        assert found.entry(channel).state is max(states, key=RANK.index)
