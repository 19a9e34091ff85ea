"""Each code that comes from a sandbox, in a real run; and what a command may do without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.codes.bodies import Body, cases_of, ends_so, shown, submit, write_evals
from tests.acceptance.codes.other_package import with_other_package

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
import asyncio

from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    if turn.text == "slow":
        await asyncio.sleep(60)
    return Turn(reply=turn.text)
"""
ARMS = {"mine": {"adapter": "python", "entry": "my_agents:worker"}}


def local(source: str, options: str = "") -> Body:
    return Body(source, kind="sandbox", options=f'sandbox=SandboxSpec(backend="local"{options})')


def rude(does: str) -> Body:
    return Body(
        "await t.sandbox.run('true')", kind="sandbox", options=f'sandbox=SandboxSpec(backend="rude", image="{does}")'
    )


BODIES = {
    "SANDBOX_SETUP_FAILED": local("t.check(1, equals(1))", ', setup=("echo no >&2; exit 3",)'),
    "SANDBOX_FILES_REFUSED": local("t.check(1, equals(1))", ', files="linked"'),
    "SANDBOX_UNSUPPORTED": local("t.check(1, equals(1))", ', user="somebody"'),
    "SANDBOX_FAILED": local("await t.sandbox.read('/etc/passwd')"),
    "SANDBOX_LOST": local("import shutil\nshutil.rmtree(t.sandbox.workdir)\nawait t.sandbox.run('true')"),
    "CHANGES_NOT_FOLLOWED": local(
        "t.check(1, equals(1))", ', setup=("cd .. && rm -rf work && touch work",), changes=TrackChanges()'
    ),
    "CHANGES_NOT_CAPTURED": local(
        "try:\n    async with asyncio.timeout(0.3):\n        await t.send('slow')\nexcept TimeoutError:\n"
        "    t.sandbox.diff()",
        ", changes=TrackChanges()",
    ),
    "CHANGES_NOT_TRACKED": replace(local("t.sandbox.no_changes()"), kind="authoring"),
    "CHANGES_OVERLAP": replace(
        local(
            "sending = asyncio.ensure_future(t.send('slow'))\nawait asyncio.sleep(0.3)\ntry:\n"
            "    await t.sandbox.write('x', '1')\nfinally:\n    sending.cancel()",
            ", changes=TrackChanges()",
        ),
        kind="authoring",
    ),
    # no run brings our own backend to this one, nor to the first and last below: another's word is taken for it
    "SANDBOX_CLOSED": rude("is-closed"),
}

#: What goes wrong before and after a body that is fine, by what the rude sandbox is told.
AROUND = {
    "SANDBOX_EXISTS": "is-there-already",
    "SANDBOX_CLOSE_FAILED": "does-not-close",
    "SANDBOX_CLEANUP_FAILED": "stays-behind",
}

#: What a command did that did not end well: its result is the author's to assert on, and no code.
COMMANDS = {
    "too_slow": local(
        "done = await t.sandbox.run('sleep', '600', timeout=0.2)\nt.check(done.timed_out, is_true())\n"
        "t.check(done, command_succeeded())"
    ),
    "not_found": local(
        "done = await t.sandbox.run('no-such-program')\nt.check(done.exit_code, equals(127))\n"
        "t.check(done, command_succeeded())"
    ),
}


@pytest.fixture(scope="module")
def cases(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project: Path = tmp_path_factory.mktemp("project")
    command = with_other_package(orchestrate, tmp_path_factory.mktemp("package"))
    (project / "my_agents.py").write_text(AGENT)
    around = {code: Body("t.check(1, equals(1))", options=rude(does).options) for code, does in AROUND.items()}
    write_evals(project, "ends", BODIES)
    write_evals(project, "around", around)
    write_evals(project, "runs", COMMANDS)
    (project / "evals" / "ends" / "linked").mkdir()
    (project / "evals" / "ends" / "linked" / "out").symlink_to("/etc")
    # two runs: an arm of which ten attempts fail by their sandbox is paused
    runs = [submit(command, project, {"arms": ARMS}, *prefixes) for prefixes in (("ends", "runs"), ("around",))]
    return {name: case for ended in runs for name, case in cases_of(orchestrate, ended).items()}


@pytest.mark.parametrize("code", BODIES)
def test_a_code_of_a_sandbox(orchestrate: Orchestrate, cases: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, cases[f"ends/{code.lower()}"], code, BODIES[code])


@pytest.mark.parametrize("code", AROUND)
def test_a_sandbox_that_fails_around_the_body(orchestrate: Orchestrate, cases: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, cases[f"around/{code.lower()}"], code, Body("", kind="sandbox"))


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_that_fails_is_a_failed_assertion(orchestrate: Orchestrate, cases: dict[str, Any], what: str) -> None:
    case = cases[f"runs/{what}"]
    assert (case["status"], case["kind"], case["code"]) == ("failed", None, None)
    first, second = shown(orchestrate, case)["attempt"]["assertions"]
    assert (first["outcome"]["result"], second["outcome"]["result"]) == ("matched", "mismatched")
