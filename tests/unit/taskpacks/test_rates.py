"""The rates of a pack: what counts as which mistake, of what, and that what is unknown is in none of them."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.api.packs import ArmRates
from evalfleet.cli.pack_lines import rate_lines
from evalfleet.taskpacks.graders import SUFFICIENCY, Gold, PointEvidence, Reading, grade
from evalfleet.taskpacks.rates import PackAttempt, PackRates, pack_rates

REQUIREMENTS = {"licence": ("export licence",), "invoice": ("commercial invoice",), "photo": ("photo",)}
WHY = "it is missing from the file"
CLEAN: dict[str, Any] = {"unexpected": [], "reverted_changes": [], "clean": True}
GAPS = Gold("ask", frozenset({"licence", "invoice"}))
NO_GAPS = Gold("release")


def asking(*names: str, reason: str = WHY) -> Reading:
    message = " ".join(f"Send the {name}." for name in names)
    return Reading("ask", names, dict.fromkeys(names, reason), message)


def attempt(
    *points: tuple[int | None, Gold, Reading], state: Any = CLEAN, eval_id: str = "parcels/one", **more: Any
) -> PackAttempt:
    """An attempt, graded by the real graders."""
    graders = [
        {**grade(name, grader, PointEvidence(gold, reading, REQUIREMENTS)).document(), "at": at}
        for at, gold, reading in points
        for name, grader in SUFFICIENCY.items()
    ]
    evidence = {"points": [None] * len(points), "state": state, "responder": {"deterministic": True}, **more}
    return PackAttempt(eval_id=eval_id, evidence=evidence, graders=graders)


def shares(*attempts: PackAttempt) -> dict[str, tuple[int, int]]:
    return {name: (each.part, each.whole) for name, each in pack_rates(attempts).rates.items() if each.whole}


RIGHT = {"undecided": (0, 1), "unexpected_change": (0, 1)}


@pytest.mark.parametrize(
    ("gold", "reading", "expected"),
    [
        (GAPS, asking("licence", "invoice"), {
            "false_sufficient": (0, 1), "missed_gap": (0, 2), "over_asking": (0, 2), "reason_missing": (0, 2)}),
        (GAPS, asking("licence"), {
            "false_sufficient": (0, 1), "missed_gap": (1, 2), "over_asking": (0, 1), "reason_missing": (0, 1)}),
        (GAPS, asking("licence", "photo", "passport"), {
            "false_sufficient": (0, 1), "missed_gap": (1, 2), "over_asking": (2, 3), "reason_missing": (0, 1)}),
        (GAPS, asking("licence", "invoice", reason=""), {
            "false_sufficient": (0, 1), "missed_gap": (0, 2), "over_asking": (0, 2), "reason_missing": (2, 2)}),
        (GAPS, Reading("release"), {"false_sufficient": (1, 1), "missed_gap": (2, 2)}),
        (GAPS, Reading(), {"false_sufficient": (0, 1), "missed_gap": (2, 2), "undecided": (1, 1)}),
        (NO_GAPS, Reading("release"), {"false_insufficient": (0, 1)}),
        (NO_GAPS, asking("licence"), {"false_insufficient": (1, 1), "over_asking": (1, 1)}),
        (NO_GAPS, Reading(), {"false_insufficient": (0, 1), "undecided": (1, 1)}),
    ],
)  # fmt: skip
def test_what_counts_as_which_mistake(gold: Gold, reading: Reading, expected: dict[str, Any]) -> None:
    assert shares(attempt((None, gold, reading))) == {**RIGHT, **expected}


@pytest.mark.parametrize(
    ("state", "share"),
    [
        (CLEAN, (0, 1)),
        ({**CLEAN, "unexpected": [{}], "clean": False}, (1, 1)),
        ({**CLEAN, "reverted_changes": [{}], "clean": False}, (1, 1)),
        ({**CLEAN, "clean": False}, (0, 1)),
        (None, None),
    ],
)
def test_what_is_an_unexpected_change(state: Any, share: Any) -> None:
    found = shares(attempt((None, NO_GAPS, Reading("release")), state=state))
    assert found.get("unexpected_change") == share


def test_every_decision_point_counts_and_the_end_tells_the_turns() -> None:
    good = attempt((1, GAPS, asking("licence", "invoice")), (None, NO_GAPS, Reading("release")))
    bad = attempt((1, GAPS, Reading("release")), (None, NO_GAPS, Reading("return")), eval_id="parcels/two")
    found = pack_rates([good, bad])
    assert (found.attempts, found.graded, found.turns) == (2, 2, 2.0)
    assert shares(good, bad)["false_sufficient"] == (1, 2)
    assert (found.k, found.reliability) == (1, {"decision": 0.5, "gap": 0.5, "request": 0.5, "state": 1.0})


def test_reliability_is_that_all_repetitions_pass() -> None:
    right, wrong = (None, NO_GAPS, Reading("release")), (None, NO_GAPS, Reading("return"))
    found = pack_rates([attempt(right), attempt(wrong), *[attempt(right, eval_id="parcels/two") for _ in range(2)]])
    assert (found.k, found.reliability["decision"], found.reliability["state"]) == (2, 0.5, 1.0)


def test_what_was_not_graded_and_what_broke_is_in_no_rate() -> None:
    errored = PackAttempt(eval_id="parcels/one", evidence={"points": [], "state": None}, graders=None, code="X")
    broken = {
        "grader": "gap",
        "status": "error",
        "expected": None,
        "actual": None,
        "detail": {"error": "x"},
        "at": None,
    }
    odd = PackAttempt(eval_id="parcels/one", evidence={"points": [None], "state": CLEAN}, graders=[broken])
    found = pack_rates([errored, odd])
    assert (found.attempts, found.graded, found.turns) == (2, 1, None)
    assert shares(errored, odd) == {"unexpected_change": (0, 1)}
    assert (found.k, found.reliability) == (1, {"state": 1.0})
    assert pack_rates([]).reliability == {}


def played(**responder: Any) -> PackRates:
    calls = [{"gave_away": []}, {"gave_away": ["release"]}, {"code": "RESPONDER_MODEL_INVALID"}]
    model = {"deterministic": False, "model": "user-m", "calls": calls, **responder}
    return pack_rates(
        [
            attempt((None, NO_GAPS, Reading("release")), responder=model),
            PackAttempt(
                eval_id="parcels/one",
                evidence={"points": [], "state": None, "responder": {**model, "calls": []}},
                graders=None,
                code="RESPONDER_MODEL_INVALID",
            ),
        ]
    )


def test_a_user_that_a_model_played_is_marked_and_measured() -> None:
    found = played()
    assert found.document()["user"] == {"model": "user-m", "calls": 3, "gave_away": 1, "ended": 1}
    assert found.document()["deterministic"] is False
    lines = list(rate_lines(ArmRates(pack="parcels", arm="clerk", rates=found)))
    assert lines[0] == "parcels · arm clerk · 2 attempts, 1 of them graded"
    assert lines[-2:] == [
        "  users played by user-m: not deterministic, the same attempt may go another way",
        "    3 calls, 1 gave something away; 1 attempt ended by who answers, ungraded",
    ]
    assert "  false insufficient      0.0 %  0 of 1" in lines and "  false sufficient            –  0 of 0" in lines
