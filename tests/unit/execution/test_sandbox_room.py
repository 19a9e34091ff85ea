"""The attempt's sandbox: made, filled, used by the author, closed; and whose fault it is when it breaks."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.assertions.matchers import command_succeeded, equals
from evalfleet.errors import FailureKind
from evalfleet.execution.attempt import AttemptControl, run_attempt
from evalfleet.model.definition import SandboxSpec, SourcePlace
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.sandbox_ports import Command, CommandResult
from evalfleet.testing.fakes import FakeAdapter, FakeSandboxes, FakeSecrets

SPEC = SandboxSpec(image="python:3.12-slim")


@pytest.mark.parametrize("plain", [False, True])
async def test_the_author_runs_commands_and_moves_files(attempt: Any, tmp_path: Path, plain: bool) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("assert True")

    async def body(t: Any) -> None:
        await t.sandbox.write("notes.txt", "hello")
        await t.sandbox.upload(tmp_path / "tests", "hidden")
        t.check(await t.sandbox.read_text("notes.txt"), equals("hello"))
        t.check(await t.sandbox.read("hidden/test_a.py"), equals(b"assert True"))
        t.check(await t.sandbox.run("pytest", "-q", cwd="hidden", timeout=5), command_succeeded())
        await t.sandbox.download("notes.txt", tmp_path / "out.txt")

    def plain_body(t: Any) -> None:
        t.sandbox.write("notes.txt", "hello")
        t.sandbox.upload(tmp_path / "tests", "hidden")
        t.check(t.sandbox.read_text("notes.txt"), equals("hello"))
        t.check(t.sandbox.read("hidden/test_a.py"), equals(b"assert True"))
        t.check(t.sandbox.run("pytest", "-q", cwd="hidden", timeout=5), command_succeeded())
        t.sandbox.download("notes.txt", tmp_path / "out.txt")

    sandboxes = FakeSandboxes()
    evidence = await attempt(plain_body if plain else body, sandbox=(sandboxes, SPEC))
    assert evidence.summary.verdict is Verdict.PASSED
    [sandbox] = sandboxes.made
    assert sandbox.id == "fake-run/11" and sandbox.closed == 1
    assert sandbox.ran == [Command(argv=("pytest", "-q"), cwd="hidden", timeout=5)]
    assert (tmp_path / "out.txt").read_text() == "hello"


async def test_the_agent_gets_the_same_sandbox(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        await ctx.sandbox.write("answer.txt", b"42")
        return Turn(reply="written")

    async def body(t: Any) -> None:
        await t.send("go")
        t.check(await t.sandbox.read_text("answer.txt"), equals("42"))

    assert (await attempt(body, answer, sandbox=(FakeSandboxes(), SPEC))).summary.verdict is Verdict.PASSED


async def test_secrets_and_files_of_the_plan_are_resolved_here(attempt: Any, tmp_path: Path) -> None:
    sandboxes = FakeSandboxes()
    spec = SandboxSpec(files="fixture", env={"A": "1"}, env_from=("KEY",))

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    await attempt(body, sandbox=(sandboxes, spec), using={"secrets": FakeSecrets({"KEY": "sk-123456"})})
    made = sandboxes.made[0].spec
    assert made.files == str(Path(__file__).parent / "fixture")
    assert made.env == {"A": "1", "KEY": "sk-123456"}
    assert spec.env == {"A": "1"}


async def test_a_fixture_fills_the_sandbox_without_the_eval(attempt: Any, tmp_path: Path) -> None:
    for name in ("PROMPT.md", "eval.py", "src/app.py", "src/deep/x.txt", "__pycache__/eval.pyc", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"this is {name}")
    sandboxes = FakeSandboxes()

    async def body(t: Any) -> None:
        t.check(t.fixture.prompt, equals("this is PROMPT.md"))

    evidence = await attempt(body, sandbox=(sandboxes, SPEC), fixture=tmp_path)
    assert evidence.summary.verdict is Verdict.PASSED
    assert sorted(sandboxes.made[0].files) == ["README.md", "src/app.py", "src/deep/x.txt"]


async def test_what_the_eval_loads_from_its_fixture_stays_hidden(attempt: Any, tmp_path: Path) -> None:
    for name in ("PROMPT.md", "eval.py", "src/app.py", "src/answers.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("VALUE = 1")
    loaded = importlib.util.spec_from_file_location("hidden_answers", tmp_path / "src" / "answers.py")
    assert loaded is not None and loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    sys.modules["hidden_answers"] = module
    sandboxes = FakeSandboxes()

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    try:
        await attempt(body, sandbox=(sandboxes, SPEC), fixture=tmp_path)
    finally:
        del sys.modules["hidden_answers"]
    assert sorted(sandboxes.made[0].files) == ["src/app.py"]


async def test_who_paces_starts_is_told_when_the_sandbox_is_there(make_job: Any, make_services: Any) -> None:
    told: list[float] = []

    async def body(t: Any) -> None:
        told.append(-1.0)
        t.check(1, equals(1))

    control = AttemptControl()
    control.sandbox_made = told.append
    await run_attempt(make_job(body, sandbox=(FakeSandboxes(), SPEC)), make_services(), control)
    seconds, after = told
    assert seconds >= 0.0 and after == -1.0


async def test_criteria_in_a_fixture_stay_hidden(make_job: Any, make_services: Any, tmp_path: Path) -> None:
    for name in ("PROMPT.md", "eval.py", "src/app.py", "src/tests/hidden.py", "answers.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    sandboxes = FakeSandboxes()

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    job = make_job(body, sandbox=(sandboxes, SPEC), fixture=tmp_path)
    place = SourcePlace(file=tmp_path / "eval.py", line=1)
    definition = replace(job.definition, place=place, criteria=("src/tests", "*.json", "gone.txt"))
    await run_attempt(replace(job, definition=definition), make_services(), AttemptControl())
    assert sorted(sandboxes.made[0].files) == ["src/app.py"]


class Broken(FakeSandboxes):
    async def create(self, spec: SandboxSpec, owner: str) -> Any:
        raise OSError("no daemon")


async def test_a_sandbox_that_can_not_be_made_runs_no_body(attempt: Any) -> None:
    reached: list[int] = []

    async def body(t: Any) -> None:
        reached.append(1)

    adapter = FakeAdapter([])
    summary = (await attempt(body, adapter, sandbox=(Broken(), SPEC))).summary
    assert (summary.outcome, summary.kind, summary.code) == (Outcome.ERRORED, FailureKind.SANDBOX, "SANDBOX_FAILED")
    assert reached == [] and adapter.sessions == []


def explode(command: Command) -> CommandResult:
    raise ConnectionResetError("daemon gone")


async def test_a_sandbox_that_breaks_is_never_the_authors_fault(attempt: Any) -> None:
    async def body(t: Any) -> None:
        try:
            await t.sandbox.run("ls")
        except Exception:
            t.check(1, equals(1))

    evidence = await attempt(body, sandbox=(FakeSandboxes(explode), SPEC))
    assert (evidence.summary.verdict, evidence.summary.kind) == (Verdict.ERRORED, FailureKind.SANDBOX)


async def test_a_missing_file_is_the_authors_to_handle(attempt: Any) -> None:
    async def body(t: Any) -> None:
        with pytest.raises(FileNotFoundError):
            await t.sandbox.read("nothing.txt")
        t.check(1, equals(1))

    assert (await attempt(body, sandbox=(FakeSandboxes(), SPEC))).summary.verdict is Verdict.PASSED


async def test_an_upload_that_is_not_awaited_is_named(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.sandbox.upload("tests", "tests")
        t.check(1, equals(1))

    summary = (await attempt(body, sandbox=(FakeSandboxes(), SPEC))).summary
    assert summary.code == "NEVER_AWAITED" and "test_sandbox_room.py:" in summary.message


async def test_without_a_sandbox_the_agent_is_told(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        await ctx.sandbox.run(Command(argv=("ls",)))
        raise AssertionError

    async def body(t: Any) -> None:
        await t.send("x")

    assert "has no sandbox" in (await attempt(body, answer)).summary.message


async def test_a_failed_close_of_the_sandbox_is_a_failed_cleanup(attempt: Any) -> None:
    class Stuck(FakeSandboxes):
        async def create(self, spec: SandboxSpec, owner: str) -> Any:
            sandbox: Any = await super().create(spec, owner)
            sandbox.close = self.refuse
            return sandbox

        async def refuse(self) -> None:
            raise OSError("busy")

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    summary = (await attempt(body, sandbox=(Stuck(), SPEC))).summary
    assert (summary.kind, summary.code) == (FailureKind.SANDBOX, "SANDBOX_CLOSE_FAILED")
    assert summary.extra == {"outcome_before_cleanup": "passed"}
