"""Who changed what, over whole attempts in local sandboxes: the agent, the eval and the setup, turn by turn."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.assertions.attributed import ChangedPaths
from evalfleet.assertions.matchers import equals, includes, pattern
from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet.execution.attempt import AttemptControl, run_attempt
from evalfleet.execution.git import GitTool
from evalfleet.execution.private_folders import PrivateFolders
from evalfleet.execution.regrade import regrade
from evalfleet.model.assertion import Result
from evalfleet.model.changes import Attribution, TrackChanges
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.testing.fakes import FakeAdapter, FakeSandboxes
from evalfleet_sandboxes import bubblewrap, local

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed: apt-get install git")

Follow = Callable[..., Any]


async def shell(turn: Any, ctx: Any) -> Turn:
    """An agent that does what it is told, as a shell script."""
    result = await ctx.sandbox.run(Command(argv=("sh", "-ec", turn.text)))
    return Turn(reply=result.text)


class Followed:
    """Runs attempts in local sandboxes whose changes are followed."""

    def __init__(self, make_job: Any, make_services: Any, state: Path, spawner: SystemSpawner) -> None:
        self._make_job = make_job
        self.place = SandboxPlace(state=state, spawner=spawner, environment={"PATH": os.environ["PATH"]})
        self._provider = local.factory.build(self.place)
        self.folders = PrivateFolders(state / "folders", "host", os.getpid())
        self.git = GitTool(spawner=spawner, environment={"PATH": os.environ["PATH"]}, folders=self.folders)
        self.services = make_services(git=self.git)

    def job(self, body: Any, spec: SandboxSpec, adapter: Any = shell, **options: Any) -> Any:
        job = self._make_job(body, adapter, sandbox=(options.pop("provider", self._provider), spec), **options)
        return replace(job, definition=replace(job.definition, sandbox=spec))

    async def __call__(
        self, body: Any, adapter: Any = shell, changes: TrackChanges | None = TrackChanges(), **options: Any
    ) -> AttemptEvidence:
        spec = SandboxSpec(backend="local", setup=options.pop("setup", ()), changes=changes)
        job = self.job(body, spec, adapter, **options)
        return await run_attempt(job, options.pop("services", self.services), AttemptControl())


@pytest.fixture
async def followed(make_job: Any, make_services: Any, tmp_path: Path) -> AsyncIterator[Followed]:
    spawner = SystemSpawner()
    yield Followed(make_job, make_services, tmp_path / "sandboxes", spawner)
    await spawner.close()


def windows(evidence: AttemptEvidence) -> list[tuple[str, str, list[str]]]:
    assert evidence.attribution is not None
    return [
        (window.label, window.by.value, [f"{change.kind.value} {change.path}" for change in window.changes])
        for window in evidence.attribution.windows
    ]


def results(evidence: AttemptEvidence) -> list[str]:
    return [row.outcome.result.value for row in evidence.assertions]


async def three_turns_in_two_sessions(t: Any) -> None:
    await t.sandbox.write("shared", "setup eval\n")
    await t.send("echo agent-1 >> shared")
    await t.sandbox.run("sh", "-c", "echo eval-2 >> shared; rm -f gone")
    await t.send("echo agent-2 >> shared; echo x > own")
    other = t.new_session()
    await other.send("cat shared")
    await t.sandbox.write("hidden/test.py", "secret")
    await other.send("echo agent-4 >> shared; rm own")
    t.sandbox.file_changed("shared")
    t.sandbox.file_deleted("own")
    t.sandbox.file_changed("hidden/**")
    t.sandbox.file_deleted("gone")
    t.sandbox.not_in_diff("eval-2")
    t.sandbox.not_in_diff(pattern(r"agent-\d"))
    t.sandbox.no_changes()


@pytest.mark.parametrize("backend", [local, bubblewrap])
async def test_each_change_stands_under_its_author_turn_after_turn(followed: Followed, backend: Any) -> None:
    provider = backend.factory.build(followed.place)
    try:
        await provider.check()
    except ConfigurationError as error:
        pytest.skip(str(error))
    setup = ("echo setup > shared", "echo x > gone", "mkdir -p src && echo 1 > src/made")
    evidence = await followed(three_turns_in_two_sessions, setup=setup, provider=provider)
    await provider.close()
    assert windows(evidence) == [
        ("turn1", "eval", ["modified shared"]),
        ("turn1", "agent", ["modified shared"]),
        ("turn2", "eval", ["deleted gone", "modified shared"]),
        ("turn2", "agent", ["added own", "modified shared"]),
        ("session2/turn1", "agent", []),
        ("session2/turn2", "eval", ["added hidden/test.py"]),
        ("session2/turn2", "agent", ["deleted own", "modified shared"]),
    ]
    assert evidence.attribution is not None
    patches = [change.patch or b"" for window in evidence.attribution.windows for change in window.changes]
    lines = [line for patch in patches for line in patch.split(b"\n") if line.startswith((b"+", b"-"))]
    assert [line for line in lines if not line.startswith((b"+++", b"---"))] == [
        *(b"-setup", b"+setup eval", b"+agent-1", b"-x", b"+eval-2", b"+x", b"+agent-2", b"+secret", b"-x"),
        b"+agent-4",
    ]
    assert results(evidence) == [
        "matched",
        "matched",
        "mismatched",
        "mismatched",
        "matched",
        "mismatched",
        "mismatched",
    ]
    assert [row.scope for row in evidence.assertions] == ["sandbox"] * 7
    assert evidence.summary.verdict is Verdict.FAILED


async def test_plain_bodies_ask_the_same(followed: Followed) -> None:
    def body(t: Any) -> None:
        t.send("echo 1 > a; echo 2 > b")
        t.sandbox.file_changed("a").label("the file")
        t.sandbox.not_in_diff("secret").optional()
        assert t.sandbox.changed_paths() == ("a", "b")
        t.check(t.sandbox.changed_paths(), equals(["a", "b"]))
        t.check(t.sandbox.diff(), includes("+++ b/a\n"))

    evidence = await followed(body)
    assert evidence.summary.verdict is Verdict.PASSED, evidence
    row = evidence.assertions[0]
    assert (row.name, row.label) == ("file_changed", "the file")


async def test_the_changes_so_far_are_those_of_the_sends_that_have_ended(followed: Followed) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        seen.append(t.sandbox.changed_paths())
        await t.send("echo 1 > a")
        seen.append(t.sandbox.changed_paths())
        await t.send("echo 1 > b")
        seen.append(t.sandbox.changed_paths())
        seen.append(t.sandbox.diff())
        t.sandbox.file_changed("b")

    await followed(body)
    assert seen[:3] == [(), ("a",), ("a", "b")]
    assert [line for line in seen[3].splitlines() if line.startswith(("#", "diff"))] == [
        *("# turn1", "diff --git a/a b/a", "# turn2", "diff --git a/b b/b"),
    ]


async def test_files_uploaded_after_the_last_send_are_seen_by_nobody(followed: Followed, tmp_path: Path) -> None:
    (tmp_path / "criteria.txt").write_text("the answer is 42")

    async def body(t: Any) -> None:
        turn = await t.send("ls -A; cat criteria.txt 2>/dev/null || echo nothing")
        await t.sandbox.upload(tmp_path / "criteria.txt", "criteria.txt")
        t.check(turn.reply, equals("nothing\n"))
        t.sandbox.no_changes()
        t.sandbox.not_in_diff("42")

    evidence = await followed(body)
    assert evidence.summary.verdict is Verdict.PASSED
    assert windows(evidence) == [("turn1", "agent", [])]


async def test_what_an_adapter_lays_out_for_its_agent_is_not_the_agents(followed: Followed) -> None:
    class LaysOut(FakeAdapter):
        async def open(self, ctx: Any) -> Any:
            await ctx.sandbox.write("AGENTS.md", b"be good")
            return await super().open(ctx)

    async def body(t: Any) -> None:
        await t.send("true")
        t.sandbox.no_changes()

    evidence = await followed(body, LaysOut(shell))
    assert windows(evidence) == [("turn1", "eval", ["added AGENTS.md"]), ("turn1", "agent", [])]
    assert evidence.summary.verdict is Verdict.PASSED


async def test_sends_in_one_workdir_go_one_at_a_time(followed: Followed) -> None:
    async def body(t: Any) -> None:
        other = t.new_session()
        script = "test ! -e busy; touch busy; sleep 0.05; rm busy; echo done > "
        await asyncio.gather(t.send(script + "a"), other.send(script + "b"))
        assert t.sandbox.changed_paths() == ("a", "b")

    evidence = await followed(body)
    assert evidence.summary.code == "NO_ASSERTIONS", evidence.summary
    assert windows(evidence) == [("turn1", "agent", ["added a"]), ("session2/turn1", "agent", ["added b"])]


@pytest.mark.parametrize("what", ["write", "upload", "run"])
async def test_nothing_is_written_during_a_send(followed: Followed, what: str) -> None:
    async def body(t: Any) -> None:
        sending = asyncio.ensure_future(t.send("sleep 0.2"))
        await asyncio.sleep(0.05)
        arguments = {"write": ("x", "1"), "upload": (__file__, "x"), "run": ("true",)}[what]
        try:
            await getattr(t.sandbox, what)(*arguments)
        finally:
            await sending

    summary = (await followed(body)).summary
    assert (summary.kind, summary.code) == (FailureKind.AUTHORING, "CHANGES_OVERLAP")


@pytest.mark.parametrize("call", ["file_changed", "file_deleted", "no_changes", "not_in_diff", "changed_paths", "diff"])
async def test_changes_that_nobody_follows_are_not_spoken_of(followed: Followed, call: str) -> None:
    async def body(t: Any) -> None:
        arguments = () if call in ("no_changes", "changed_paths", "diff") else ("x",)
        getattr(t.sandbox, call)(*arguments)

    evidence = await followed(body, changes=None)
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.AUTHORING, "CHANGES_NOT_TRACKED")
    assert evidence.attribution is None


async def test_a_diff_assertion_can_not_stop_the_body(followed: Followed) -> None:
    async def body(t: Any) -> None:
        await t.sandbox.no_changes().or_stop()

    summary = (await followed(body)).summary
    assert summary.code == "ASSERTION_MISCONFIGURED" and "when the test body has ended" in (summary.message or "")


async def test_another_assertion_stops_without_answering_it_early(followed: Followed) -> None:
    async def body(t: Any) -> None:
        t.sandbox.file_changed("a")
        await t.check(1, equals(1)).or_stop()
        await t.send("echo 1 > a")

    assert (await followed(body)).summary.verdict is Verdict.PASSED


async def test_a_failed_send_leaves_its_window(followed: Followed) -> None:
    async def fails(turn: Any, ctx: Any) -> Turn:
        await ctx.sandbox.write("half", b"1")
        raise RuntimeError("broke")

    async def body(t: Any) -> None:
        await t.send("x")

    assert windows(await followed(body, fails)) == [("turn1", "agent", ["added half"])]


async def test_a_send_that_is_broken_off_leaves_the_changes_unknown(followed: Followed) -> None:
    async def body(t: Any) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await t.send("echo 1 > a; sleep 5")
        t.sandbox.no_changes()

    evidence = await followed(body)
    [row] = evidence.assertions
    assert row.outcome.result is Result.UNAVAILABLE
    assert row.outcome.reason == "diff:unavailable (turn1 was broken off)"
    assert evidence.summary.verdict is Verdict.ERRORED


async def test_what_git_can_not_do_makes_assertions_unavailable(followed: Followed) -> None:
    async def body(t: Any) -> None:
        await t.send("echo 1 > a")
        await t.send("echo 1 > b; cd ..; rm -rf work; echo > work")
        t.sandbox.file_changed("a")
        t.sandbox.file_changed("b")
        t.sandbox.no_changes()
        t.sandbox.not_in_diff("x")

    evidence = await followed(body)
    assert evidence.attribution is not None and evidence.attribution.error is not None
    assert windows(evidence) == [("turn1", "agent", ["added a"])]
    assert results(evidence) == ["matched", "unavailable", "mismatched", "unavailable"]


async def test_unknown_changes_are_never_read_as_none(followed: Followed) -> None:
    async def body(t: Any) -> None:
        await t.send("cd ..; rm -rf work; echo > work")
        t.sandbox.changed_paths()

    summary = (await followed(body)).summary
    assert summary.kind is FailureKind.SANDBOX and summary.code in ("CHANGES_NOT_CAPTURED", "SANDBOX_LOST")


async def test_where_it_can_not_be_followed_nothing_is_sent(
    followed: Followed, tmp_path: Path, make_services: Any
) -> None:
    async def body(t: Any) -> None:
        raise AssertionError

    nowhere = replace(followed.git, environment={"PATH": str(tmp_path)})
    (tmp_path / "file").touch()
    no_room = replace(followed.git, folders=PrivateFolders(tmp_path / "file", "host", 1))
    for services, said in (
        (make_services(), "there is no git here"),
        (make_services(git=nowhere), "git is not installed here"),
        (make_services(git=no_room), "no private folder can be made"),
    ):
        adapter = FakeAdapter(shell)
        spec = SandboxSpec(backend="local", changes=TrackChanges())
        summary = (await run_attempt(followed.job(body, spec, adapter), services, AttemptControl())).summary
        assert (summary.kind, summary.code) == (FailureKind.SANDBOX, "CHANGES_NOT_FOLLOWED")
        assert said in (summary.message or "") and adapter.sessions == []


async def test_a_sandbox_that_only_exports_is_followed_by_copies(followed: Followed) -> None:
    async def writes(turn: Any, ctx: Any) -> Turn:
        await ctx.sandbox.write(turn.text, b"1")
        return Turn(reply="")

    async def body(t: Any) -> None:
        await t.sandbox.write("by-eval", "1")
        await t.send("by-agent")
        t.sandbox.file_changed("by-agent")
        t.sandbox.file_changed("by-eval")

    evidence = await followed(body, writes, provider=FakeSandboxes())
    assert windows(evidence) == [("turn1", "eval", ["added by-eval"]), ("turn1", "agent", ["added by-agent"])]
    assert results(evidence) == ["matched", "mismatched"]


async def test_left_out_and_included_names(followed: Followed) -> None:
    async def body(t: Any) -> None:
        await t.send("mkdir dist node_modules logs; touch dist/a node_modules/a logs/a a.tmp kept")
        assert t.sandbox.changed_paths() == ("dist/a", "kept")

    tracking = TrackChanges(ignore=("/logs", "*.tmp"), include=("dist",))
    assert (await followed(body, changes=tracking)).summary.code == "NO_ASSERTIONS"


async def test_nothing_is_left_beside_the_sandbox(followed: Followed) -> None:
    seen: list[str] = []

    async def body(t: Any) -> None:
        seen.extend(os.listdir(followed.folders.root))
        await t.send("mkdir closed; chmod 000 closed")
        t.sandbox.no_changes()

    await followed(body)
    assert [name.split("~")[:2] for name in seen] == [["host", str(os.getpid())]]
    assert os.listdir(followed.folders.root) == []


def test_what_the_dead_left_is_swept(tmp_path: Path) -> None:
    for name in ("my_host~7~a", "my_host~8~b", "my_host~x~c", "other~7~d", "else"):
        (tmp_path / name / "objects").mkdir(parents=True)
    assert PrivateFolders(tmp_path, "my host", 8).sweep(lambda pid: pid == 8) == 1
    assert sorted(os.listdir(tmp_path)) == ["else", "my_host~8~b", "my_host~x~c", "other~7~d"]
    assert PrivateFolders(tmp_path / "none", "host", 1).sweep(lambda _: False) == 0


# --- on the record -----------------------------------------------------------------------------------------------


async def test_an_edited_diff_assertion_is_judged_on_the_record(followed: Followed) -> None:
    async def live(t: Any) -> None:
        await t.send("echo 1 > a")
        t.sandbox.no_changes()

    async def edited(t: Any) -> None:
        before = t.sandbox.changed_paths()
        await t.send("echo 1 > a")
        t.check(before, equals([]))
        t.check(t.sandbox.changed_paths(), equals(["a"]))
        t.check(t.sandbox.diff(), includes("+1"))
        t.sandbox.file_changed("a")
        t.sandbox.file_changed("b")

    recorded = await followed(live)
    job = followed.job(edited, SandboxSpec(changes=TrackChanges()))
    found = await regrade(job, followed.services, AttemptControl(), recorded)
    assert results(found.evidence) == ["matched", "matched", "matched", "matched", "mismatched"]
    assert found.evidence.attribution == recorded.attribution


async def test_changes_that_were_not_recorded_are_unavailable(followed: Followed) -> None:
    async def live(t: Any) -> None:
        t.check((await t.send("echo 1 > a")).reply, equals(""))

    async def edited(t: Any) -> None:
        await t.send("echo 1 > a")
        t.check(t.sandbox.changed_paths(), equals(["a"]))
        t.sandbox.no_changes()

    recorded = await followed(live, changes=None)
    job = followed.job(edited, SandboxSpec(changes=TrackChanges()))
    found = await regrade(job, followed.services, AttemptControl(), recorded)
    assert [row.outcome.reason for row in found.evidence.assertions] == ["not-recorded", "not-recorded"]


def test_a_partial_value_keeps_its_gap_in_copies() -> None:
    paths = ChangedPaths(("a",), "diff:partial (1 beyond the limits)")
    for other in (copy.deepcopy(paths), pickle.loads(pickle.dumps(paths))):
        assert (other, other.gap) == (paths, paths.gap)
    assert Attribution().gap is None


async def test_a_lost_sandbox_is_the_sandboxes_fault(followed: Followed) -> None:
    async def body(t: Any) -> None:
        await t.send("x")
        t.sandbox.no_changes()

    async def loses(turn: Any, ctx: Any) -> Turn:
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", "gone")

    summary = (await followed(body, loses)).summary
    assert (summary.kind, summary.code) == (FailureKind.SANDBOX, "SANDBOX_LOST")
