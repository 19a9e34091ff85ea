from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import MISSING, Message, OperationFinished, OperationStarted, Role
from evalfleet.model.report import AttemptDetail, AttemptView
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.verdict import Outcome
from evalfleet.reports.evidence_value import detail_value, plain
from evalfleet.reports.json_text import to_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (9007199254740993, 9007199254740993),
        (True, True),
        (float("nan"), {"$number": "nan"}),
        (float("-inf"), {"$number": "-inf"}),
        (b"\x00\xff", {"$base64": "AP8="}),
        ((1, None), [1, None]),
        ({"a": {1: "x"}}, {"a": {"1": "x"}}),
        (Role.USER, "user"),
        (
            OperationFinished("1"),
            {"type": "operation.finished", "operation_id": "1", "status": "completed", "kind": "tool"},
        ),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected


def test_null_and_nothing_stay_apart() -> None:
    assert "input" not in plain(OperationStarted("1", "f"))
    assert plain(OperationStarted("1", "f", None))["input"] is None


def test_a_whole_attempt_is_strict_json_with_its_text_intact() -> None:
    said = "\ud800 \x00 \u2028 </script>"
    turn = TurnRecord(
        session=0,
        index=0,
        sequence=0,
        input=TurnInput(said),
        status=TurnStatus.COMPLETED,
        events=(Message(Role.ASSISTANT, said), OperationStarted("1", "f", {"id": 9007199254740993, "x": float("inf")})),
        data=MISSING,
        usage=None,
        coverage=COMPLETE_COVERAGE,
        started_at=0.0,
        duration=0.1,
    )
    view = AttemptView(
        attempt=1, case=0, number=1, outcome=Outcome.COMPLETED, settles=True, worker="w", started_at=0.0, duration=0.1
    )
    text = to_json(detail_value(AttemptDetail(view=view, turns=(turn,), assertions=())))
    back = json.loads(text, parse_constant=pytest.fail)["turns"][0]
    assert back["events"][0]["text"] == said
    assert back["events"][1]["input"]["id"] == 9007199254740993
    assert "data" not in back
