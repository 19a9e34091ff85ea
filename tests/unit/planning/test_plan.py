"""A project and an experiment become one frozen plan, or one list of problems."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.case import Case
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.model.verdict import CaseStatus, Style
from evalfleet.planning.definition_digests import changed_definition, own_digests, recorded_digests
from evalfleet.planning.discover import discover
from evalfleet.planning.experiment_file import load_experiment, restore_experiment
from evalfleet.planning.lock import Commands
from evalfleet.planning.plan import Plan, PlanTools, make_plan
from evalfleet.planning.reuse import ActionKind, NoHistory, Past
from evalfleet.planning.select import Narrowing
from evalfleet.ports import AgentIdentity
from evalfleet.processes import SystemSpawner
from tests.unit.planning.projects import QuietFactory, write

HEAD = "from evalfleet.planning.define import define_eval, define_score_eval\n"
HEAD += "from evalfleet.planning.dataset import Dataset\nfrom evalfleet.model.definition import SandboxSpec\n"
PLAIN = HEAD + "@define_eval(tags=['smoke'])\ndef one(t): ...\n"
SQL = HEAD + "@define_eval(dataset=Dataset.jsonl('data/sql.jsonl', id='id'), tags=['sql'])\ndef sql(t, row): ...\n"
ROWS = [{"id": f"q{n}", "n": n} for n in range(6)]
FILES: dict[str, str | bytes] = {
    "evals/plain.eval.py": PLAIN,
    "evals/sql.eval.py": SQL,
    "evals/data/sql.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "agent.py": "import agent_tools\n",
    "agent_tools.py": "",
}
EXPERIMENT = "schema_version: 1\nname: sweep\narms:\n  a: {adapter: direct}\n  b: {adapter: direct, model: m}\n"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def factories(project: Path) -> dict[str, QuietFactory]:
    entry = AgentIdentity(version="1", sources=(project / "agent.py",))
    return {
        "direct": QuietFactory(name="direct", identity=entry),
        "boxed": QuietFactory(name="boxed", identity=entry, sandboxed=True),
        "remote": QuietFactory(name="remote", identity=AgentIdentity(version="1", reason="it runs elsewhere")),
        "refusing": QuietFactory(name="refusing", refuses="entry: there is no such agent"),
    }


async def plan(
    project: Path,
    experiment: str = EXPERIMENT,
    narrowing: Narrowing | None = None,
    *,
    allow_empty: bool = False,
    kept_bytes: int = 1 << 20,
    default_backend: Callable[[], Awaitable[DefaultBackend]] | None = None,
) -> Plan:
    write(project, {"experiment.yaml": experiment})
    known = factories(project)
    loaded = load_experiment(project / "experiment.yaml", {}, known)
    tools = PlanTools(
        factories=known, spawner=SystemSpawner(), env=ENV, kept_bytes=kept_bytes, default_backend=default_backend
    )
    return await make_plan(loaded, discover(project), tools, narrowing, allow_empty=allow_empty)


async def refused(project: Path, experiment: str = EXPERIMENT, narrowing: Narrowing | None = None) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        await plan(project, experiment, narrowing)
    return list(caught.value.problems)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    yield write(tmp_path.resolve(), FILES)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("evals", "_evalfleet")):
            del sys.modules[name]


def ids(cases: Iterator[Case]) -> set[str]:
    return {case.eval_id for case in cases}


async def test_a_plan_is_every_arm_eval_and_repetition_once(project: Path) -> None:
    found = await plan(project, EXPERIMENT + "repetitions: 3\n")
    cases = list(found.cases())
    assert found.total == len(cases) == 2 * 7 * 3
    assert found.per_arm == 21
    assert len({(case.arm, case.eval_id, case.repetition) for case in cases}) == 42
    assert cases == list(found.cases())
    assert ids(iter(cases)) == {"plain", *(f"sql/q{n}" for n in range(6))}
    assert {case.definition for case in cases} == {"plain", "sql"}
    row = next(case for case in cases if case.eval_id == "sql/q3")
    assert (row.row, row.tags, row.style) == (b'{"id":"q3","n":3}', ("sql",), Style.PASS)
    assert [(record.uri, record.rows) for record in found.datasets] == [("evals/data/sql.jsonl", 6)]
    assert {arm.name: arm.sandboxed for arm in found.arms} == {"a": False, "b": False}


@pytest.mark.parametrize(
    ("more", "place", "message"),
    [
        (
            "repetitions: 1000000000\n",
            (6, "repetitions"),
            "14,000,000,000 cases = evals 7 × arms 2 × repetitions 1,000,000,000; a run has at most 10,000,000",
        ),
        (
            "matrix: {flags.x: [1, 2, 3]}\nrepetitions: 238096\n",
            (7, "repetitions"),
            "10,000,032 cases = evals 7 × arms 6 × repetitions 238,096; a run has at most 10,000,000",
        ),
        (
            f"matrix: {{flags.x: {list(range(3000))}}}\nrepetitions: 2000\n",
            (6, "matrix"),
            "84,000,000 cases = evals 7 × arms 6,000 × repetitions 2,000; a run has at most 10,000,000",
        ),
        (
            f"repetitions: {10**4000}\n",
            (6, "repetitions"),
            "1.4e+4001 cases = evals 7 × arms 2 × repetitions 1.0e+4000; a run has at most 10,000,000",
        ),
    ],
    ids=["repetitions", "product", "matrix", "beyond printing"],
)
async def test_too_many_cases_are_refused_with_their_factors_before_any_is_made(
    project: Path, more: str, place: tuple[int, str], message: str
) -> None:
    (problem,) = await refused(project, EXPERIMENT + more)
    assert (problem.code, problem.line, problem.field, problem.message) == ("TOO_MANY_CASES", *place, message)
    assert problem.hint == "lower repetitions, set evals.limit, or plan fewer arms"


async def test_cases_are_counted_after_what_was_narrowed(project: Path) -> None:
    experiment = EXPERIMENT + "repetitions: 1000000\n"
    found = await plan(project, experiment, Narrowing(prefixes=("sql/q1",), arms=("a",)))
    assert found.total == 1_000_000
    assert next(found.cases()).ordinal == 0


async def test_an_empty_plan_of_any_repetitions_ends(project: Path) -> None:
    experiment = EXPERIMENT + f"evals: {{tags: [nobody]}}\nrepetitions: {10**12}\n"
    assert list((await plan(project, experiment, allow_empty=True)).cases()) == []


async def test_chosen_rows_keep_their_ids_and_all_rows_are_counted(project: Path) -> None:
    whole = {(case.arm, case.eval_id): case.content for case in (await plan(project)).cases()}
    write(project, {"evals/sql.eval.py": SQL.replace("'id')", "'id').filter({'n': [1, 3, 4, 5]}).sample(2)")})
    found = await plan(project, narrowing=Narrowing(prefixes=("sql",)))
    cases = list(found.cases())
    assert len(cases) == 2 * 2
    assert all(whole[case.arm, case.eval_id] == case.content for case in cases)
    assert [record.rows for record in found.datasets] == [6]


async def test_a_filter_that_leaves_nothing_is_no_empty_success(project: Path) -> None:
    write(project, {"evals/sql.eval.py": SQL.replace("'id')", "'id').filter({'n': 77})")})
    (problem,) = await refused(project)
    assert (problem.code, problem.message) == ("EMPTY_DATASET", "no case is selected: its filter leaves none of 6 rows")
    found = await plan(project, narrowing=Narrowing(prefixes=("sql",)), allow_empty=True)
    assert found.total == 0


@pytest.mark.parametrize("kept_bytes", [0, 20, 60])
async def test_rows_that_do_not_fit_in_memory_are_kept_all_the_same(project: Path, kept_bytes: int) -> None:
    whole = list((await plan(project)).cases())
    found = await plan(project, kept_bytes=kept_bytes)
    write(project, {"evals/data/sql.jsonl": '{"id":"q9"}\n'})
    assert list(found.cases()) == list(found.cases()) == whole


@pytest.mark.parametrize(
    ("evals", "narrowing", "expected"),
    [
        ("{select: [sql]}", None, {f"sql/q{n}" for n in range(6)}),
        ("{select: [sql/q1, plain]}", None, {"sql/q1", "plain"}),
        ("{tags: [smoke]}", None, {"plain"}),
        ("{exclude: [sql/q]}", None, {"plain"}),
        ("{}", Narrowing(prefixes=("sql/q2",)), {"sql/q2"}),
        ("{}", Narrowing(tags=("smoke",)), {"plain"}),
    ],
)
async def test_selection(project: Path, evals: str, narrowing: Narrowing | None, expected: set[str]) -> None:
    found = await plan(project, EXPERIMENT + f"evals: {evals}\n", narrowing)
    assert ids(found.cases()) == expected


async def test_a_limit_is_a_sample_that_a_larger_limit_extends(project: Path) -> None:
    async def sample(limit: int, seed: int) -> set[str]:
        return ids((await plan(project, EXPERIMENT + f"evals: {{limit: {limit}, seed: {seed}}}\n")).cases())

    samples = [await sample(limit, 5) for limit in range(1, 8)]
    assert [len(found) for found in samples] == list(range(1, 8))
    assert all(small < large for small, large in pairwise(samples))
    assert await sample(3, 6) != samples[2]


async def test_shuffled_rows_are_the_same_cases(project: Path) -> None:
    before = {case.fingerprint for case in (await plan(project)).cases()}
    write(project, {"evals/data/sql.jsonl": "".join(json.dumps(row) + "\n" for row in reversed(ROWS))})
    assert {case.fingerprint for case in (await plan(project)).cases()} == before


async def test_a_row_that_stands_twice_is_two_samples(project: Path) -> None:
    write(
        project,
        {
            "evals/sql.eval.py": SQL.replace(", id='id'", ""),
            "evals/data/sql.jsonl": '{"q":1}\n{"q":1}\n{"q":1}\n',
        },
    )
    found = list((await plan(project, narrowing=Narrowing(prefixes=("sql",), arms=("a",)))).cases())
    assert len({case.content for case in found}) == len({case.fingerprint for case in found}) == 3


ROW_3 = json.dumps(ROWS[3])
EDITED_ROWS = str(FILES["evals/data/sql.jsonl"]).replace(ROW_3, ROW_3.replace("}", ', "more": 1}'))


def with_arm(settings: str) -> str:
    return EXPERIMENT.replace("adapter: direct}", f"adapter: direct, {settings}}}")


CHANGES: dict[str, tuple[dict[str, str | bytes], str, set[str]]] = {
    "one row": ({"evals/data/sql.jsonl": EDITED_ROWS}, EXPERIMENT, {"row"}),
    "the eval": ({"evals/sql.eval.py": SQL + "# edited\n"}, EXPERIMENT, {"source"}),
    "what the agent imports": ({"agent_tools.py": "X = 1\n"}, EXPERIMENT, {"agent"}),
    "the model": ({}, with_arm("model: n"), {"model"}),
    "a flag": ({}, with_arm("flags: {p: 1}"), {"flags"}),
    "an option": ({}, with_arm("entry: e"), {"options"}),
    "the target": ({}, with_arm("target: {fingerprint: x}"), {"target"}),
    "labels and description": ({}, with_arm("labels: {x: 1}, description: d"), set()),
    "limits and budget": ({}, EXPERIMENT + "limits: {concurrency: 1}\nbudget: {wall: 3h}\nrepetitions: 1\n", set()),
    "the name": ({}, EXPERIMENT.replace("sweep", "other"), set()),
    "an unrelated file": ({"notes.py": "x\n"}, EXPERIMENT, set()),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_reruns_what_it_touches_and_names_the_field(project: Path, change: str) -> None:
    before = await plan(project)
    parts = {(case.arm, case.eval_id): before.parts(case) for case in before.cases()}
    prints = {(case.arm, case.eval_id): case.fingerprint for case in before.cases()}
    files, experiment, fields = CHANGES[change]
    write(project, files)
    after = await plan(project, experiment)
    changed = {
        name for case in after.cases() for name in after.parts(case).changed(parts[case.arm, case.eval_id].fields)
    }
    assert changed == fields
    for case in after.cases():
        same = after.parts(case) == parts[case.arm, case.eval_id]
        assert (case.fingerprint == prints[case.arm, case.eval_id]) == same
    if change == "one row":
        assert sum(case.fingerprint != prints[case.arm, case.eval_id] for case in after.cases()) == 2


async def test_where_the_project_lies_does_not_count(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = [case.fingerprint for case in (await plan(project)).cases()]
    there = write(tmp_path_factory.mktemp("elsewhere").resolve(), FILES)
    assert [case.fingerprint for case in (await plan(there)).cases()] == here


async def test_a_command_gives_the_targets_fingerprint(project: Path) -> None:
    remote = "schema_version: 1\nname: s\narms:\n  a: {adapter: remote, target: {fingerprint: '$(cat revision)'}}\n"
    write(project, {"revision": "one\n"})
    first = await plan(project, remote)
    assert first.arms[0].agent.target == "one"
    write(project, {"revision": "two\n"})
    second = await plan(project, remote)
    fields = second.arms[0].parts.changed(first.arms[0].parts.fields)
    assert fields == ("target",)
    write(project, {"revision": ""})
    for script, text in (("cat revision", "prints nothing"), ("exit 3", "exit code 3"), ("cat gone", "No such file")):
        (problem,) = await refused(project, remote.replace("cat revision", script))
        assert (problem.code, problem.line) == ("INVALID_ARM", 4)
        assert text in problem.message


async def test_an_agent_that_nothing_identifies_is_never_carried(project: Path) -> None:
    found = await plan(project, "schema_version: 1\nname: s\narms:\n  a: {adapter: remote}\n")
    assert {case.fingerprint for case in found.cases()} == {None}
    reasons = {action.reason for action in found.actions(NoHistory())}
    assert len(reasons) == 1
    assert "it runs elsewhere; set target.fingerprint" in reasons.pop()


@dataclass
class Before:
    """A history that settled every Case of a plan as passed."""

    plan: Plan

    def settled(self, fingerprint: str, repetition: int) -> Past | None:
        return self._pasts().get(fingerprint)

    def resembling(self, case: Case) -> Past | None:
        return next(
            (past for past in self._pasts().values() if past.ordinal == self._ordinals()[case.arm, case.eval_id]), None
        )

    def _pasts(self) -> dict[str, Past]:
        return {
            str(case.fingerprint): Past(
                run="r1",
                ordinal=case.ordinal,
                status=CaseStatus.PASSED,
                fingerprint=case.fingerprint,
                parts=self.plan.parts(case).fields,
            )
            for case in self.plan.cases()
        }

    def _ordinals(self) -> Mapping[tuple[str, str], int]:
        return {(case.arm, case.eval_id): case.ordinal for case in self.plan.cases()}


async def test_what_did_not_change_is_carried_and_what_did_says_which_field(project: Path) -> None:
    before = await plan(project)
    assert {action.kind for action in before.actions(Before(before))} == {ActionKind.CARRY}
    after = await plan(project, EXPERIMENT.replace("model: m", "model: other"))
    actions = list(after.actions(Before(before)))
    assert {action.case.arm for action in actions if action.kind is ActionKind.CARRY} == {"a"}
    assert {action.changed for action in actions if action.kind is ActionKind.RUN} == {("model",)}


async def test_a_resumed_run_names_what_changed_in_its_definition(project: Path) -> None:
    before = await plan(project)
    assert changed_definition(before.digests, (await plan(project)).digests) == ()
    write(project, {"evals/sql.eval.py": SQL + "# edited\n", "evals/data/sql.jsonl": '{"id":"q0"}\n', "agent.py": ""})
    edited = EXPERIMENT.replace("model: m", "model: n").replace("name: sweep", "name: other")
    after = await plan(project, edited + "evals: {seed: 4}\nlimits: {concurrency: 2}\nretry: {max_attempts: 9}\n")
    assert set(changed_definition(before.digests, after.digests)) == {
        "evals.seed",
        "arms.b.model",
        "arm a agent",
        "arm b agent",
        "eval sql source",
        "dataset evals/data/sql.jsonl",
    }
    assert before.digest != after.digest


async def test_a_run_keeps_the_digests_of_an_eval_once(project: Path) -> None:
    planned = await plan(project)
    evals = {name: dict(parts.fields) for name, parts in planned.eval_parts.items()}
    own = own_digests(planned.digests, planned.eval_parts)
    assert "eval sql source" in planned.digests and not any(name.startswith("eval ") for name in own)
    assert recorded_digests(own, evals) == dict(planned.digests)
    assert recorded_digests(planned.digests, evals) == dict(planned.digests), "an older run kept all of them"


async def test_a_snapshot_plans_the_same_run(project: Path) -> None:
    before = await plan(project)
    known = factories(project)
    restored = restore_experiment(before.experiment.snapshot(), project / "experiment.yaml", known)
    tools = PlanTools(factories=known, spawner=SystemSpawner(), env=ENV)
    again = await make_plan(restored, discover(project), tools)
    assert (again.digest, list(again.cases())) == (before.digest, list(before.cases()))


async def test_the_lock_names_revision_changes_and_versions(project: Path) -> None:
    assert (await plan(project)).lock["git"] is None
    commands = Commands(spawner=SystemSpawner(), env=ENV, folder=project)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for command in (("git", "init", "-q"), ("git", "add", "."), (*git, "commit", "-q", "-m", "x")):
        ended = await commands.run(*command)
        assert ended is not None and ended.ok, ended
    clean = (await plan(project)).lock
    assert len(clean["git"]["revision"]) == 40
    assert clean["git"]["dirty"] is None
    digests = set()
    for content in ("1\n", "2\n"):
        write(project, {"agent.py": content})
        digests.add((await plan(project)).lock["git"]["dirty"])
    assert None not in digests and len(digests) == 2
    assert clean["python"] == sys.version.split()[0]
    assert "pydantic" in clean["packages"]
    json.dumps(clean)


BAD_ROWS = '{"id":"a"}\n{}\n{"id":"a"}\n'
JUDGED = HEAD + "@define_eval(judge=True)\ndef one(t): ...\n"
WITH_IMAGE = HEAD + "@define_eval(sandbox=SandboxSpec(image='i'))\ndef one(t): ...\n"
SCORE = HEAD + "@define_score_eval\ndef one(t): ...\n"
BOXED = "schema_version: 1\nname: s\narms:\n  a: {adapter: boxed}\n  b: {adapter: boxed}\n"


@pytest.mark.parametrize(
    ("files", "experiment", "narrowing", "expected"),
    [
        ({"evals/score.eval.py": SCORE}, EXPERIMENT, None, [("MIXED_STYLES", 1)]),
        ({}, EXPERIMENT + "evals:\n  select: [wether]\n", None, [("UNKNOWN_PREFIX", 7)]),
        ({}, EXPERIMENT + "evals:\n  exclude:\n    - sql\n    - nope\n", None, [("UNKNOWN_PREFIX", 9)]),
        ({}, EXPERIMENT, Narrowing(prefixes=("nope",)), [("UNKNOWN_PREFIX", None)]),
        ({}, EXPERIMENT, Narrowing(arms=("c",)), [("UNKNOWN_ARM", None)]),
        ({}, EXPERIMENT + "evals: {select: [sql], tags: [smoke]}\n", None, [("NO_CASES", 6)]),
        ({"evals/data/sql.jsonl": ""}, EXPERIMENT, None, [("EMPTY_DATASET", None)]),
        (
            {"evals/data/sql.jsonl": '{"id":"a"}\n{}\n{"id":"a"}\n'},
            EXPERIMENT,
            None,
            [("MISSING_ID", 2), ("DUPLICATE_ID", 3)],
        ),
        (
            {"evals/judged.eval.py": JUDGED},
            EXPERIMENT + "judge: {model: m, calibration: gone.json}\n",
            None,
            [("INVALID_CALIBRATION", None)],
        ),
        ({}, EXPERIMENT.replace("adapter: direct}", "adapter: refusing}"), None, [("INVALID_ARM", 4)]),
        ({}, BOXED, None, [("SANDBOX_TEMPLATE_MISSING", None)] * 4),
        (
            {"evals/plain.eval.py": WITH_IMAGE},
            BOXED + "sandbox: {backend: container, image: j}\n",
            Narrowing(prefixes=("plain",)),
            [("SANDBOX_TEMPLATE_CONFLICT", 4)] * 2,
        ),
        (
            {"evals/plain.eval.py": WITH_IMAGE},
            EXPERIMENT,
            None,
            [("SANDBOX_UNEXPECTED", 4)] * 2,
        ),
        (
            {},
            BOXED + "sandbox: {backend: local, files: gone}\n",
            Narrowing(arms=("a",), prefixes=("pl",)),
            [("SANDBOX_FILES_MISSING", 4)],
        ),
    ],
)
async def test_what_can_not_be_planned_is_refused_at_its_place(
    project: Path, files: dict[str, Any], experiment: str, narrowing: Narrowing | None, expected: list[Any]
) -> None:
    write(project, files)
    found = await refused(project, experiment, narrowing)
    places = [(code, line) for code, line in expected]
    if places[0][1] is None:
        assert [problem.code for problem in found] == [code for code, _ in places]
    else:
        assert [(problem.code, problem.line) for problem in found] == places


async def test_problems_of_all_kinds_come_together(project: Path) -> None:
    write(project, {"evals/score.eval.py": SCORE, "evals/data/sql.jsonl": "{\n"})
    found = await refused(project, EXPERIMENT.replace("direct}", "refusing}") + "evals: {exclude: [nope]}\n")
    assert {problem.code for problem in found} == {"INVALID_ARM", "INVALID_JSON", "UNKNOWN_PREFIX"}


async def test_an_empty_plan_is_planned_when_asked_for(project: Path) -> None:
    found = await plan(project, EXPERIMENT + "evals: {select: [sql], tags: [smoke]}\n", allow_empty=True)
    assert (found.total, list(found.cases())) == (0, [])
    write(project, {"evals/data/sql.jsonl": ""})
    found = await plan(project, narrowing=Narrowing(tags=("sql",)), allow_empty=True)
    assert found.total == 0


async def test_sandboxes_are_resolved_for_every_pair(project: Path) -> None:
    write(project, {"start/a.txt": "1"})
    experiment = BOXED + "sandbox: {backend: local, files: start}\n"
    before = await plan(project, experiment)
    assert set(before.sandboxes) == {(arm, name) for arm in "ab" for name in ("plain", "sql")}
    spec = before.sandboxes["a", "sql"]
    assert spec is not None and (spec.backend, spec.files) == ("local", str(project / "start"))
    write(project, {"start/a.txt": "2"})
    after = await plan(project, experiment)
    case = next(after.cases())
    assert after.parts(case).changed(before.parts(case).fields) == ("sandbox",)


async def test_the_default_backend_is_asked_for_once_and_only_if_it_is_needed(project: Path) -> None:
    asked: list[str] = []

    def tools(name: str) -> Any:
        async def choose() -> DefaultBackend:
            asked.append(name)
            return DefaultBackend(name=name, why="because")

        return choose

    named = await plan(project, BOXED + "sandbox: {backend: bubblewrap}\n", default_backend=tools("bubblewrap"))
    direct = await plan(project, default_backend=tools("bubblewrap"))
    assert (asked, named.default_backend, direct.default_backend) == ([], None, None)
    isolated = await plan(project, BOXED, default_backend=tools("bubblewrap"))
    open_ = await plan(project, BOXED, default_backend=tools("local"))
    assert asked == ["bubblewrap", "local"]
    assert {spec.backend for spec in isolated.sandboxes.values() if spec is not None} == {"bubblewrap"}
    assert isolated.default_backend == DefaultBackend(name="bubblewrap", why="because")
    # one that is named and one that is chosen may share results; an unfinished run in another kind of sandbox goes on
    # in that kind, so it is none of the same definitions
    assert [case.fingerprint for case in isolated.cases()] == [case.fingerprint for case in named.cases()]
    case = next(isolated.cases())
    assert isolated.parts(case).changed(open_.parts(case).fields) == ("sandbox",)
    assert changed_definition(isolated.digests, open_.digests) == ("default sandbox backend",)


async def test_a_fixture_counts_by_content(project: Path) -> None:
    write(project, {"evals/fix/eval.py": PLAIN, "evals/fix/PROMPT.md": "Fix it.", "evals/fix/src/a.py": "1"})
    before = await plan(project, narrowing=Narrowing(prefixes=("fix",)))
    write(project, {"evals/fix/src/a.py": "2"})
    after = await plan(project, narrowing=Narrowing(prefixes=("fix",)))
    case = next(after.cases())
    assert after.parts(case).changed(before.parts(case).fields) == ("fixture",)
