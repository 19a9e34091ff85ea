"""Codes of declarative suites: of files, of selections, of criteria and of conversations, each triggered by its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet import evaluate_assertions
from evalfleet.errors import DefinitionError
from evalfleet.reports.document_case import Planned, case_entry
from evalfleet.reports.document_checks import check_document
from evalfleet.suites.context import EvaluationContext, Evaluators
from evalfleet.suites.evaluate import evaluate
from evalfleet.suites.observation import Observation
from evalfleet.suites.parse import parse_assertions
from tests.acceptance.codes.bodies import submit
from tests.unit.reports.documents import CHECKOUT, VALIDATOR, case, detail, turn

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
from evalfleet import Coverage, InputOption, InputRequested, Stop, StopKind, Turn, agent, complete, partial

COVERAGE = Coverage(events=complete, actions=partial("only the last call"), messages=complete, usage=complete,
                    status=complete, data=complete)

@agent(coverage=COVERAGE)
async def clerk(turn, ctx):
    stop = Stop(StopKind.COMPLETED, "sold out") if turn.text == "leave" else None
    options = (InputOption("desk", "A lamp"), InputOption("wall", "A lamp"))
    events = (InputRequested("which", options=options),) if turn.text == "which" else ()
    return Turn(reply=turn.text, stop=stop, events=events)
"""

EVALUATORS = """
from evalfleet import evaluator

@evaluator("breaks")
def breaks(context, parameters):
    raise RuntimeError("a private text")

@evaluator("says-one")
def says_one(context, parameters):
    return {"passed": 1}
"""


def check(path: list[Any], operator: str, **more: Any) -> dict[str, Any]:
    return {"id": "c", "kind": "check", "path": path, "operator": operator, **more}


def custom(evaluator: str) -> dict[str, Any]:
    return {"id": "c", "kind": "custom", "evaluator": evaluator, "parameters": {}}


def negated(assertion: dict[str, Any]) -> dict[str, Any]:
    return {"id": "n", "kind": "not", "assertion": assertion}


def scenario(name: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "writePolicy": "read_only", "steps": list(steps), **more}


def step(name: str, text: str, *assertions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "input": {"text": text}, "assertions": list(assertions), **more}


def selecting_step(name: str, **selection: Any) -> dict[str, Any]:
    return {"id": name, "input": {"text": "this one", "selection": selection}}


def suite(*scenarios: dict[str, Any]) -> dict[str, Any]:
    return {"schemaVersion": 1, "id": "shop", "name": "Shop", "scenarios": list(scenarios)}


FINE = step("a", "hello", check(["reply"], "equals", value="hello"))

#: A scenario for each code: how its case ends, and where the error stands.
SCENARIOS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "EVALUATOR_FAILED": (
        scenario("evaluator_failed", step("a", "x", negated(custom("breaks"))), FINE | {"id": "b"}),
        "error",
        "turns.0.assertions.n.c",
    ),
    "EVALUATOR_RESULT_INVALID": (
        scenario("evaluator_result_invalid", FINE, assertions=[custom("says-one")]),
        "error",
        "assertions.c",
    ),
    "EVIDENCE_NOT_COVERED": (
        scenario("evidence_not_covered", step("a", "x", check(["toolCalls", 0], "absent"))),
        "error",
        "turns.0.assertions.c",
    ),
    "EVALUATION_EARLY_COMPLETION": (
        scenario("evaluation_early_completion", step("a", "leave"), step("b", "x")),
        "blocked",
        None,
    ),
    "EVALUATION_AGENT_INPUT_INVALID": (
        scenario("evaluation_agent_input_invalid", selecting_step("a", optionIndex=0, optionId="desk")),
        "error",
        None,
    ),
    "EVALUATION_SELECTION_UNAVAILABLE": (
        scenario("evaluation_selection_unavailable", selecting_step("a", optionIndex=0)),
        "error",
        None,
    ),
    "EVALUATION_SELECTION_AMBIGUOUS": (
        scenario("evaluation_selection_ambiguous", step("a", "which"), selecting_step("b", optionLabel="A lamp")),
        "error",
        None,
    ),
}  # fmt: skip


def project(folder: Path, *scenarios: dict[str, Any], evaluators: str = EVALUATORS) -> Path:
    (folder / "evals").mkdir(parents=True, exist_ok=True)
    (folder / "evals" / "shop.suite.json").write_text(json.dumps(suite(*scenarios)))
    (folder / "evals" / "evaluators.py").write_text(evaluators)
    (folder / "my_clerk.py").write_text(AGENT)
    return folder


ARMS = {"mine": {"adapter": "python", "entry": "my_clerk:clerk", "selections": True}}


@pytest.fixture(scope="module")
def written(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The report of one run of all scenarios, as text, and its cases by scenario."""
    folder = project(
        tmp_path_factory.mktemp("project"), *(each for each, *_ in SCENARIOS.values()), scenario("fine", FINE)
    )
    ended = submit(orchestrate, folder, {"arms": ARMS})
    reported = orchestrate("report", ended.values[-1]["run"]["id"], "--format", "json")
    (document,) = reported.values
    VALIDATOR.validate(document)
    check_document(document, "report.json")
    return reported.out, {case["scenarioId"]: case for case in document["cases"]}


@pytest.mark.parametrize("code", SCENARIOS)
def test_a_code_of_a_scenario(written: tuple[str, dict[str, Any]], code: str) -> None:
    _, status, pointer = SCENARIOS[code]
    case = written[1][code.lower()]
    assert (case["status"], case["errorCode"], case.get("errorPointer")) == (status, code, pointer)
    played = 2 if code == "EVALUATION_SELECTION_AMBIGUOUS" else 1
    assert len(case["turns"]) == played, "what can't be judged, and an agent that wants no more, end the conversation"
    if "SELECTION" in code or "INPUT" in code:
        assert (case["turns"][-1]["errorCode"], "observation" in case["turns"][-1]) == (code, False)


def test_the_others_pass_and_no_private_text_is_in_the_report(written: tuple[str, dict[str, Any]]) -> None:
    assert written[1]["fine"]["status"] == "passed"
    assert "a private text" not in written[0] and "RuntimeError" not in written[0]


def nested(depth: int) -> dict[str, Any]:
    return {"x": nested(depth - 1)} if depth else {}


TEN = [{"id": f"v{n}", "input": {}} for n in range(10)]

#: Scenarios, or evaluators, or a selection, that are refused with each code before anything runs.
REFUSED: dict[str, tuple[list[dict[str, Any]], str, Mapping[str, Any]]] = {
    "EVALUATION_SUITE_INVALID": ([scenario("s", step("a", "x", check(["reply"], "resembles")))], EVALUATORS, {}),
    "EVALUATION_DATA_LIMIT": ([scenario("s", FINE, metadata=nested(61))], EVALUATORS, {}),
    "EVALUATION_SCENARIO_NOT_FOUND": ([scenario("s", FINE)], EVALUATORS, {"scenario_ids": ["t"]}),
    "EVALUATION_VARIANT_NOT_FOUND": ([scenario("s", FINE)], EVALUATORS, {"variants": {"a": ["long"]}}),
    "EVALUATION_CASE_LIMIT": (
        [scenario("s", *(step(f"a{n}", "x", variants=TEN) for n in range(9)))],
        EVALUATORS,
        {},
    ),
    "EVALUATOR_NOT_FOUND": ([scenario("s", step("a", "x", custom("nobody")))], EVALUATORS, {}),
    "DUPLICATE_EVALUATOR": (
        [scenario("s", step("a", "x", custom("breaks")))],
        EVALUATORS.replace('"says-one"', '"breaks"'),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", REFUSED)
def test_a_code_of_what_is_refused(orchestrate: Orchestrate, tmp_path: Path, code: str) -> None:
    scenarios, evaluators, selection = REFUSED[code]
    folder = project(tmp_path, *scenarios, evaluators=evaluators)
    experiment = {"schema_version": 1, "name": "codes", "arms": ARMS, "evals": dict(selection)}
    (folder / "experiment.yaml").write_text(json.dumps(experiment))
    ended = orchestrate("plan", "experiment.yaml", "--json", cwd=folder)
    assert ended.code == 2, ended.out + ended.err
    assert code in {problem["code"] for problem in ended.values[0]["error"]["problems"]}, ended.out


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


#: What the functions refuse that take criteria, observations and selections from a program.
CALLED = {
    "EVALUATION_ASSERTIONS_INVALID": lambda: asyncio.run(evaluate_assertions([{"kind": "check"}], {})),
    "EVALUATION_DATA_CYCLE": lambda: asyncio.run(evaluate_assertions([check([], "exists")], cyclic())),
}


@pytest.mark.parametrize("code", CALLED)
def test_a_code_of_a_function(code: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        CALLED[code]()
    assert refused.value.code == code


def selecting(folder: Path, **selection: Any) -> None:
    experiment = {"schema_version": 1, "name": "shop", "arms": ARMS, "evals": selection}
    (folder / "experiment.yaml").write_text(json.dumps(experiment))


def test_a_tag_that_no_scenario_has_is_a_warning(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path, scenario("s", FINE, tags=["smoke"]))
    selecting(folder, tags=["smoke", "smoek"])
    planned = orchestrate("plan", "experiment.yaml", "--json", cwd=folder).values[-1]
    assert [(each["code"], each["hint"]) for each in planned["warnings"]] == [("UNKNOWN_TAG", "did you mean 'smoke'?")]


def test_a_selection_that_leaves_no_scenario_is_refused(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path, scenario("s", FINE))
    selecting(folder, scenario_ids=[])
    ended = orchestrate("plan", "experiment.yaml", "--json", cwd=folder)
    problems = ended.values[0]["error"]["problems"]
    assert (ended.code, {each["code"] for each in problems}) == (2, {"EVALUATION_SELECTION_EMPTY"})


def test_a_scenario_that_checks_nothing_is_a_warning(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path, scenario("fine", FINE), scenario("empty", step("a", "x")))
    listed = orchestrate("list", "--lint", "--json", cwd=folder).values
    warned = [value["warning"] for value in listed if "warning" in value]
    assert [(each["code"], "'shop/empty'" in each["message"]) for each in warned] == [("NO_CRITERIA", True)]


async def test_what_is_reached_when_the_attempt_is_to_end_is_cancelled() -> None:
    async def nowhere(call: Any) -> Any:
        raise AssertionError("nothing is called any more")

    context = EvaluationContext(evidence=Observation(value={}), cancellation=lambda: True)
    evaluators = Evaluators(functions={}, run_blocking=nowhere)
    (outcome,) = await evaluate(parse_assertions([check([], "exists")]), context, evaluators)
    assert (outcome.passed, outcome.error_code) == (False, "EVALUATION_CANCELLED")


def test_a_case_with_fewer_turns_than_steps_is_never_a_pass() -> None:
    planned = Planned(scenario_id="checkout", name="Checkout", scenario=CHECKOUT["scenarios"][0])
    view = case(eval_id="shop/checkout")
    played, cut = (case_entry("r", view, detail(*map(turn, range(turns))), planned) for turns in (2, 1))
    assert played["status"] == "passed"
    assert (cut["status"], cut["errorCode"]) == ("blocked", "EVALUATION_INCOMPLETE")
