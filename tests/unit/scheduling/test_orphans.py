"""Which sandboxes are nobody's any more: the table of what is known of one, and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalfleet.model.sandbox import SandboxRow, SandboxState, Standing
from evalfleet.sandbox_ports import FoundSandbox
from evalfleet.scheduling.orphans import APPEARS_WITHIN, Backend, reconciled

NOW = 1_800_000_000.0
DEAD, LIVING = ("here", 11), ("here", 12)
ALIVE = {DEAD: False, LIVING: True}

FOUND = FoundSandbox(id="c0ffee", owner="r1/101", host="here", pid=11, created_at=NOW - 60, alive=None)
ROW = SandboxRow(
    backend="container",
    owner="r1/101",
    id="c0ffee",
    run="r1",
    attempt=101,
    case=1,
    eval_id="sql/0001",
    host="here",
    pid=11,
    state=SandboxState.MADE,
    created_at=NOW - 60,
    expires_at=NOW + 3600,
    expired=False,
    ownerless=False,
)


@pytest.mark.parametrize(
    ("found", "row", "standing", "why"),
    [
        # by what the backend itself can tell
        ({"alive": True}, {}, Standing.IN_USE, "process 11 on here lives"),
        ({"alive": False}, {}, Standing.ORPHAN, "process 11 on here is dead"),
        # by the process that the row names
        ({}, {}, Standing.ORPHAN, "process 11 on here is dead"),
        ({}, {"pid": 12}, Standing.IN_USE, "process 11 on here lives"),
        # of a process elsewhere nothing is known
        ({"host": "there"}, {"host": "there"}, Standing.UNVERIFIED, "whether process 11 on there lives"),
        ({"host": "there"}, {"host": "there", "ownerless": True}, Standing.ORPHAN, "run r1 has ended"),
        ({"host": "there"}, {"host": "there", "expired": True}, Standing.ORPHAN, "its time is over"),
        # a living process still closes what its run is done with, but not for ever
        ({"alive": True}, {"ownerless": True}, Standing.IN_USE, "lives"),
        ({"alive": True}, {"expired": True}, Standing.ORPHAN, "its time is over"),
        # one whose announcement was never followed up is there all the same
        ({}, {"state": SandboxState.ANNOUNCED, "id": None}, Standing.ORPHAN, "is dead"),
        ({}, {"state": SandboxState.GONE}, Standing.ORPHAN, "is dead"),
        # kept ones are spared until their time is over
        ({"kept": True}, {}, Standing.KEPT, "kept"),
        ({}, {"state": SandboxState.KEPT, "ownerless": True}, Standing.KEPT, "kept"),
        ({"kept": True}, {"state": SandboxState.KEPT, "expired": True}, Standing.ORPHAN, "its time is over"),
    ],
)
def test_how_a_sandbox_stands(found: dict[str, Any], row: dict[str, Any], standing: Standing, why: str) -> None:
    backend = Backend(name="container", outlives=True, found=[replace(FOUND, **found)])
    result = reconciled([backend], [replace(ROW, **row)], ALIVE, NOW)
    (view,) = result.views
    assert view.standing is standing and why in view.why
    assert (view.run, view.case, view.eval_id) == ("r1", 1, "sql/0001")
    assert (result.foreign, result.ended) == (0, ())


def test_what_was_never_announced_here_is_somebody_elses() -> None:
    other = replace(ROW, owner="r2/7")
    result = reconciled([Backend(name="container", outlives=True, found=[FOUND])], [other], ALIVE, NOW)
    assert (result.views, result.foreign) == ((), 1)


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        ({"alive": True}, Standing.IN_USE),
        ({"alive": False}, Standing.ORPHAN),
        ({"alive": False, "kept": True}, Standing.KEPT),
    ],
)
def test_in_our_own_state_folder_no_row_is_needed(found: dict[str, Any], standing: Standing) -> None:
    backend = Backend(name="local", outlives=False, found=[replace(FOUND, **found)])
    (view,) = reconciled([backend], [], ALIVE, NOW).views
    assert (view.standing, view.run) == (standing, None)


LONG_AGO = NOW - APPEARS_WITHIN - 1


@pytest.mark.parametrize(
    ("row", "end"),
    [
        ({"state": SandboxState.ANNOUNCED}, SandboxState.GONE),
        ({"state": SandboxState.MADE}, SandboxState.LOST),
        ({"state": SandboxState.KEPT, "pid": 12}, SandboxState.LOST),
        ({"state": SandboxState.MADE, "pid": 12, "ownerless": True}, SandboxState.LOST),
        ({"host": "there", "expired": True}, SandboxState.LOST),
        # its maker may be about to make or to close it
        ({"pid": 12}, None),
        # the engine may still be making what a dead client asked for
        ({"state": SandboxState.ANNOUNCED, "created_at": NOW - 60}, None),
        # it may be there on the other machine
        ({"host": "there", "ownerless": True}, None),
        ({"state": SandboxState.GONE}, None),
        ({"backend": "kubernetes"}, None),
    ],
)
def test_a_row_without_a_sandbox_ends_once_none_can_appear(row: dict[str, Any], end: SandboxState | None) -> None:
    given = replace(ROW, **{"created_at": LONG_AGO, **row})
    result = reconciled([Backend(name="container", outlives=True, found=[])], [given], ALIVE, NOW)
    assert [state for _, state in result.ended] == ([] if end is None else [end])
    assert result.views == ()


def test_the_oldest_comes_first_whatever_its_backend() -> None:
    backends = [
        Backend(name=name, outlives=False, found=[replace(FOUND, id=name, created_at=NOW - age)])
        for name, age in (("a", 1), ("b", 9), ("c", 5))
    ]
    assert [view.id for view in reconciled(backends, [], {}, NOW).views] == ["b", "c", "a"]
