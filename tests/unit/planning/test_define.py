"""The decorators: what they accept, what they keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import AuthoringError
from evalfleet.model.changes import TrackChanges
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.verdict import Style
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.define import define_eval, define_score_eval

ROWS = Dataset.jsonl("rows.jsonl")


async def body(t: Any) -> None: ...


def with_row(t: Any, row: Any) -> None: ...


def test_every_option_is_kept() -> None:
    definition = define_score_eval(
        description="d",
        tags=["a", "b", "a"],
        dataset=ROWS,
        sandbox=SandboxSpec(image="i", setup=["x"], env_from=["KEY"], network=["h"]),  # type: ignore[arg-type]
        judge={"model": "m"},
        timeout="20m",
        allow_no_assertions=True,
        replayable=False,
        external=True,
        metadata={"k": [1]},
    )(with_row)
    assert definition.place is not None
    assert definition == EvalDefinition(
        body=with_row,
        style=Style.SCORE,
        description="d",
        tags=("a", "b"),
        rows=ROWS,
        sandbox=SandboxSpec(image="i", setup=("x",), env_from=("KEY",), network=("h",)),
        judge={"model": "m"},
        timeout=1200.0,
        allow_no_assertions=True,
        replayable=False,
        external=True,
        metadata={"k": [1]},
        place=definition.place,
    )


def test_the_decorator_works_bare_called_and_applied() -> None:
    bare = define_eval(body)
    called = define_eval()(body)
    applied = define_eval(description="x")(lambda t: None)
    assert [one.style for one in (bare, called, applied)] == [Style.PASS] * 3
    assert all(one.place is not None and one.place.file == Path(__file__) for one in (bare, called, applied))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"description": 3}, "INVALID_OPTION"),
        ({"tags": "smoke"}, "INVALID_OPTION"),
        ({"tags": [3]}, "INVALID_OPTION"),
        ({"tags": [" "]}, "INVALID_OPTION"),
        ({"dataset": [{"a": 1}]}, "INVALID_OPTION"),
        ({"sandbox": "container"}, "INVALID_OPTION"),
        ({"criteria": "answer.json"}, "INVALID_OPTION"),
        ({"criteria": []}, "INVALID_OPTION"),
        ({"criteria": ["/etc/passwd"]}, "INVALID_OPTION"),
        ({"criteria": [1]}, "INVALID_OPTION"),
        ({"serves": "/mcp"}, "INVALID_OPTION"),
        ({"serves": []}, "INVALID_OPTION"),
        ({"serves": ["mcp"]}, "INVALID_OPTION"),
        ({"serves": ["/mcp/"]}, "INVALID_OPTION"),
        ({"serves": ["/../mcp x"]}, "INVALID_OPTION"),
        ({"sandbox": SandboxSpec(changes=True)}, "INVALID_OPTION"),  # type: ignore[arg-type]
        ({"sandbox": SandboxSpec(changes=TrackChanges(ignore="x"))}, "INVALID_OPTION"),  # type: ignore[arg-type]
        ({"sandbox": SandboxSpec(changes=TrackChanges(ignore=("../x",)))}, "INVALID_OPTION"),
        ({"sandbox": SandboxSpec(changes=TrackChanges(include=("src",)))}, "INVALID_OPTION"),
        ({"sandbox": SandboxSpec(setup="pip install x")}, "INVALID_OPTION"),  # type: ignore[arg-type]
        ({"judge": "gpt"}, "INVALID_OPTION"),
        ({"timeout": 0}, "INVALID_OPTION"),
        ({"timeout": "soon"}, "INVALID_OPTION"),
        ({"external": 1}, "INVALID_OPTION"),
        ({"metadata": []}, "INVALID_OPTION"),
        ({"id": "x"}, "UNKNOWN_OPTION"),
        ({"discription": "x"}, "UNKNOWN_OPTION"),
    ],
)
def test_a_wrong_option_is_refused_where_it_stands(options: dict[str, Any], code: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        define_eval(**options)
    assert caught.value.code == code


def test_a_body_takes_what_it_is_given() -> None:
    define_eval(dataset=ROWS)(with_row)
    define_eval(lambda t, more=1: None)
    for options, wrong in (({}, with_row), ({"dataset": ROWS}, body), ({}, lambda: None), ({}, lambda t, *, key: None)):
        with pytest.raises(AuthoringError) as caught:
            define_eval(**options)(wrong)
        assert caught.value.code == "INVALID_BODY"
    with pytest.raises(AuthoringError):
        define_eval()(define_eval(body))  # type: ignore[arg-type]
