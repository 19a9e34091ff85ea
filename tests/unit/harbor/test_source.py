"""Task folders become definitions, and what can't be kept of one is refused by the name of its setting."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import pytest

from evalfleet.errors import DefinitionError, Problem
from evalfleet.harbor.body import TaskBody
from evalfleet.harbor.source import HarborTasks
from evalfleet.harbor.task_folder import TaskFolder
from evalfleet.model.definition import EvalDefinition, Resources
from evalfleet.model.verdict import Style
from evalfleet.planning.discover import discover

FOLDERS = Path(__file__).parents[2] / "data" / "harbor"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(FOLDERS / "pass", tmp_path / "evals" / "demo")
    return tmp_path


def load(project: Path, folder: str = "demo") -> list[EvalDefinition | Problem]:
    return list(HarborTasks().load(project, project / "evals" / folder / "task.toml"))


def definition(project: Path, toml: str | None = None) -> EvalDefinition:
    if toml is not None:
        (project / "evals/demo/task.toml").write_text(toml)
    (found,) = load(project)
    assert isinstance(found, EvalDefinition), found
    return found


def problems(project: Path, toml: str) -> list[tuple[str, str | None]]:
    (project / "evals/demo/task.toml").write_text(toml)
    found = load(project)
    assert all(isinstance(each, Problem) for each in found)
    return [(each.code, each.field) for each in found if isinstance(each, Problem)]


def task_of(found: EvalDefinition) -> TaskFolder:
    assert isinstance(found.body, TaskBody)
    return found.body.task


def test_a_folder_is_one_eval_of_its_path() -> None:
    source = HarborTasks()
    assert source.claims(PurePosixPath("terminal/demo/task.toml"))
    assert not source.claims(PurePosixPath("task.toml"))
    assert not source.claims(PurePosixPath("demo/instruction.md"))
    assert source.path_id(PurePosixPath("terminal/demo/task.toml")) == "terminal/demo"


def test_what_a_folder_says_becomes_a_definition(project: Path) -> None:
    found = definition(project)
    assert (found.id, found.style, found.tags, found.replayable) == ("demo", Style.PASS, ("harbor",), False)
    assert found.description == "echo 42 > answer.txt"
    assert found.timeout == 60 + 30 + 120
    assert found.criteria == ("instruction.md", "tests")
    assert found.metadata == {"difficulty": "easy", "tags": ["harbor"]}
    spec = found.sandbox
    assert spec is not None
    assert (spec.build, spec.image, spec.network, spec.user) == ("environment", None, "none", None)
    assert spec.resources == Resources(cpus=1.0, memory=512 << 20)
    (step,) = task_of(found).steps
    assert (step.instruction, step.agent_seconds, step.verifier_seconds) == ("echo 42 > answer.txt\n", 60.0, 30.0)
    assert task_of(found).root == ""


def test_a_folder_that_says_nothing_has_the_format_s_defaults(project: Path) -> None:
    found = definition(project, "")
    assert found.sandbox is not None
    assert (found.sandbox.network, found.sandbox.resources, found.timeout) == ("open", Resources(), None)
    (step,) = task_of(found).steps
    assert (step.agent_seconds, step.verifier_seconds, step.verifier_user) == (None, 600.0, None)


SETTINGS: dict[str, tuple[str, dict[str, object]]] = {
    "a named image goes before the Dockerfile": (
        '[environment]\ndocker_image = "demo:1"', {"image": "demo:1", "build": None}
    ),
    "sizes as they were once written": (
        '[environment]\nmemory = "2G"\nstorage = "512M"', {"resources": Resources(memory=2 << 30, disk=512 << 20)}
    ),
    "sizes in megabytes": (
        "[environment]\nmemory_mb = 64\nstorage_mb = 128\ncpus = 2",
        {"resources": Resources(cpus=2.0, memory=64 << 20, disk=128 << 20)},
    ),
    "single hosts": (
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]', {"network": ("example.org",)}
    ),
    "hosts without a mode": ('[environment]\nallowed_hosts = ["example.org"]', {"network": ("example.org",)}),
    "an open network": ('[environment]\nnetwork_mode = "public"\nallow_internet = false', {"network": "open"}),
    "an agent that is a user": ('[agent]\nuser = "worker"', {"user": "worker"}),
    "an agent that is a number": ("[agent]\nuser = 1000", {"user": "1000"}),
    "variables and secrets": (
        '[environment.env]\nMODE = "fast"\nAPI_KEY = "${API_KEY}"', {"env": {"MODE": "fast"}, "env_from": ("API_KEY",)}
    ),
    "variables of the host under other names, and their defaults": (
        '[environment.env]\nA = "${B}"\nC = "${C:-a b=c}"\nD = "${E:-}"',
        {"env": {}, "env_from": ("A=B", "C=C:-a b=c", "D=E:-")},
    ),
    "what changes nothing": (
        '[environment]\ngpus = 0\nos = "Linux"\n[agent]\nnetwork_mode = "public"', {"network": "open"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_sandbox_is_kept(project: Path, name: str) -> None:
    toml, expected = SETTINGS[name]
    spec = definition(project, toml).sandbox
    assert {field: getattr(spec, field) for field in expected} == expected


def test_checks_of_health_are_kept_with_the_time_that_they_may_take(project: Path) -> None:
    toml = '[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30\n[environment.healthcheck]\ncommand = "true"\n'
    found = definition(project, toml + "start_period_sec = 10\nretries = 2\n")
    check = task_of(found).health
    assert check is not None and (check.command, check.retries, check.interval_sec) == ("true", 2, 5.0)
    assert found.timeout == 60 + 30 + 120 + 10 + 5 + 2 * (30 + 5)
    assert problems(project, "[environment.healthcheck]\nretries = 0") == [
        ("INVALID_TASK", "environment.healthcheck.command"),
        ("INVALID_TASK", "environment.healthcheck.retries"),
    ]


REFUSED = {
    "environment.os": '[environment]\nos = "windows"',
    "environment.gpus": "[environment]\ngpus = 1",
    "environment.tpu": '[environment.tpu]\ntype = "v6e"',
    "environment.mcp_servers": '[[environment.mcp_servers]]\nname = "x"',
    "environment.skills_dir": '[environment]\nskills_dir = "/skills"',
    "environment.workdir": '[environment]\nworkdir = "/srv"',
    "environment.env.A": '[environment.env]\nA = "x${B}"',
    "environment.env.B": '[environment.env]\nB = "${B}${C}"',
    "environment.env.C": '[environment.env]\nC = "${C:-${D}}"',
    "environment.allowed_hosts": '[environment]\nallowed_hosts = ["10.0.0.0/8"]',
    "verifier.environment": '[verifier]\nenvironment_mode = "separate"',
    "verifier.collect": '[[verifier.collect]]\ncommand = "true"',
    "verifier.continuous": "[verifier.continuous]\nenabled = true",
    "verifier.env.KEY": '[verifier.env]\nKEY = "${KEY}"',
    "agent.network_mode": '[agent]\nnetwork_mode = "no-network"',
    "verifier.network_mode": '[environment]\nallow_internet = false\n[verifier]\nnetwork_mode = "public"',
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_setting_that_can_t_be_kept_is_refused(project: Path, field: str) -> None:
    assert problems(project, REFUSED[field]) == [("TASK_NOT_SUPPORTED", field)]


def test_several_services_are_refused(project: Path) -> None:
    (project / "evals/demo/environment/docker-compose.yaml").write_text("services: {}")
    assert problems(project, "") == [("TASK_NOT_SUPPORTED", "environment")]


INVALID = {
    "no TOML": ("[agent", None),
    "no UTF-8": ("\udcff", None),
    "text for a number": ('[agent]\ntimeout_sec = "60"', "agent.timeout_sec"),
    "no time at all": ("[verifier]\ntimeout_sec = 0", "verifier.timeout_sec"),
    "a Boolean for a number": ("[environment]\nmemory_mb = true", "environment.memory_mb"),
    "a size without a unit": ('[environment]\nmemory = "2"', "environment.memory"),
    "a network that is none": ('[environment]\nnetwork_mode = "some"', "environment.network_mode"),
    "a style that is none": ('[metadata.evalfleet]\nstyle = "both"', "metadata.evalfleet.style"),
    "a step whose name leads elsewhere": ('[[steps]]\nname = "../demo"', "steps"),
    "a step without a folder": ('[[steps]]\nname = "first"', None),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_file_that_is_wrong_is_told_with_its_setting(project: Path, name: str) -> None:
    toml, field = INVALID[name]
    (project / "evals/demo/task.toml").write_bytes(toml.encode("utf-8", "surrogateescape"))
    (found,) = load(project)
    assert isinstance(found, Problem)
    assert (found.code, found.field, found.file) == ("INVALID_TASK", field, str(project / "evals/demo/task.toml"))


@pytest.mark.parametrize("name", ["instruction.md", "tests/test.sh"])
def test_a_folder_without_its_parts_says_what_is_missing(project: Path, name: str) -> None:
    (project / "evals/demo" / name).unlink()
    (found,) = load(project)
    assert isinstance(found, Problem) and found.code == "INVALID_TASK"
    assert name in found.message


def test_an_instruction_that_is_empty_is_none(project: Path) -> None:
    (project / "evals/demo/instruction.md").write_text(" \n")
    assert [found.code for found in load(project) if isinstance(found, Problem)] == ["INVALID_TASK"]


def test_marks_of_a_data_set_are_not_said_to_the_agent(project: Path) -> None:
    marked = "<!-- a canary: 12-34 -->\n# Another CANARY\n\n# Do it\n\nNow. # canary\n"
    (project / "evals/demo/instruction.md").write_text(marked)
    (step,) = task_of(definition(project)).steps
    assert step.instruction == "# Do it\n\nNow. # canary\n"


def test_settings_without_effect_are_kept_by_name(project: Path) -> None:
    toml = 'artifacts = ["/app"]\nnew = 1\n[agent]\nmood = "good"\n[metadata]\nanything = 1979-05-27\n'
    found = definition(project, toml)
    assert task_of(found).ignored == ("new", "agent.mood", "artifacts")
    assert found.metadata == {"anything": "1979-05-27"}


def test_a_task_may_be_read_as_a_score(project: Path) -> None:
    assert definition(project, '[metadata.evalfleet]\nstyle = "score"').style is Style.SCORE


@pytest.mark.parametrize(
    ("toml", "user"),
    [
        ("", None),
        ('[agent]\nuser = "worker"', "0"),
        ('[agent]\nuser = "worker"\n[verifier]\nuser = "judge"', "judge"),
        ('[verifier]\nuser = "root"', "0"),
    ],
)
def test_who_runs_the_tests(project: Path, toml: str, user: str | None) -> None:
    (step,) = task_of(definition(project, toml)).steps
    assert step.verifier_user == user


def test_without_an_image_the_places_of_tests_are_fresh_ones(project: Path) -> None:
    shutil.rmtree(project / "evals/demo/environment")
    found = definition(project)
    assert found.sandbox is not None and found.sandbox.build is None
    assert task_of(found).root is None


def test_steps_are_said_one_after_the_other(project: Path) -> None:
    shutil.copytree(FOLDERS / "multi_step", project / "evals" / "steps")
    (found,) = load(project, "steps")
    assert isinstance(found, EvalDefinition)
    assert found.description == "Writes a line, and then another one below it."
    task = task_of(found)
    first, second = task.steps
    folder = project / "evals" / "steps"
    assert (first.name, first.tests, first.min_reward) == (
        "first", (folder / "tests", folder / "steps/first/tests"), {"reward": 1.0},
    )  # fmt: skip
    assert (second.workdir, second.min_reward, task.final) == (folder / "steps/second/workdir", {}, False)
    assert found.criteria == ("instruction.md", "tests", "steps")[1:]


def test_a_user_of_a_single_step_is_refused(project: Path) -> None:
    shutil.copytree(FOLDERS / "multi_step", project / "evals" / "steps")
    with (project / "evals/steps/task.toml").open("a") as file:
        file.write('[steps.agent.extra]\n[[steps]]\nname = "third"\nagent = { user = "root" }\n')
    (project / "evals/steps/steps/third").mkdir()
    (project / "evals/steps/steps/third/instruction.md").write_text("true")
    assert [(each.code, each.field) for each in load(project, "steps") if isinstance(each, Problem)] == [
        ("TASK_NOT_SUPPORTED", "steps[2].agent.user")
    ]


def test_nothing_else_is_looked_for_in_a_task_folder(project: Path) -> None:
    folder = project / "evals" / "demo"
    shutil.copytree(FOLDERS / "pass", folder / "environment" / "inner")
    for place in ("environment/eval.py", "tests/eval.py", "solution/demo.eval.py"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text("no Python")
    assert [found.id for found in discover(project).definitions] == ["demo"]


def test_a_task_folder_that_is_an_eval_of_another_form_too_is_told(project: Path) -> None:
    (project / "evals/demo/eval.py").write_text("from evalfleet import *\n\n@define_eval\nasync def body(t): ...\n")
    with pytest.raises(DefinitionError) as raised:
        discover(project)
    assert raised.value.code == "DUPLICATE_ID"
