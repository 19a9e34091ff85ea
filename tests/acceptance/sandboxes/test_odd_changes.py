"""Odd changes of agents, on every backend that needs no engine: each is seen as what it is, and applies to the base."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.plugins import sandbox_factories

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent
from evalfleet.sandbox_ports import Command

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    done = await ctx.sandbox.run(Command(argv=("sh", "-ec", turn.text)))
    return Turn(reply=done.text + done.stderr.decode())
"""
#: Files before the agent works: what lies in the repository, what the setup left beside it, and what is changed in it.
BASE = {
    "edited": b"one\n",
    "staged": b"one\n",
    "deleted": b"one\n",
    "carriage": b"a\r\nb\r\n",
    "blank": b"x\n \n",
    "unended": b"no newline",
    "run.sh": b"#!/bin/sh\n",
    ".gitignore": b"*.log\n",
}
EVAL = r"""
from evalfleet import SandboxSpec, TrackChanges, define_eval, equals

GIT = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always -c init.defaultBranch=main"
SETUP = (
    f"{GIT} init -q . && {GIT} add . && {GIT} commit -qm base",
    f"for name in sub broken; do {GIT} init -q ../tmp/$name; echo in > ../tmp/$name/inner; {GIT} -C ../tmp/$name add .;"
    f" {GIT} -C ../tmp/$name commit -qm sub; {GIT} submodule add -q $PWD/../tmp/$name $name; done",
    f"{GIT} commit -qam subs; rm -r .git/modules/broken",
    "mkdir out; echo built > out/of.txt; echo dirty >> edited; head -c 20000000 /dev/zero > big",
)
WORK = f"{GIT} config core.autocrlf true; echo two > edited; echo two > staged;" + r'''
printf 'a\r\nB\r\n' > carriage; printf 'y\n \n' > blank; printf 'still none' > unended
chmod +x run.sh; ln -s run.sh link; printf 'echo\n' > new.sh; chmod 755 new.sh
printf 'a\000b' > nul; printf x >> big; echo x > ignored.log
echo changed > sub/inner; echo changed > broken/inner; rm deleted
''' + f'''
{GIT} config --unset core.autocrlf; {GIT} add staged; {GIT} commit -qm edit --only edited
'''
STATE = f"{GIT} rev-parse HEAD; cat .git/index | sha256sum"

@define_eval(sandbox=SandboxSpec(files="base", setup=SETUP, changes=TrackChanges()))
async def body(t):
    (await t.send(WORK)).succeeded()
    before = await t.send(STATE)
    t.check((await t.sandbox.run("sh", "-c", STATE)).text, equals(before.reply))
    await t.sandbox.download(".", "../after")
"""
FOUND = [
    ("modified", "big", True),
    ("modified", "blank", False),
    ("modified", "broken/inner", False),
    ("modified", "carriage", False),
    ("deleted", "deleted", False),
    ("modified", "edited", False),
    ("added", "ignored.log", False),
    ("added", "link", False),
    ("added", "new.sh", False),
    ("added", "nul", True),
    ("mode", "run.sh", False),
    ("modified", "staged", False),
    ("modified", "sub/inner", False),
    ("modified", "unended", False),
]
PLACES = {
    "local": {"backend": "local"},
    "bubblewrap": {"backend": "bubblewrap"},
    "bubblewrap, in memory": {"backend": "bubblewrap", "resources": {"disk": 300_000_000}},
}


def project(folder: Path, sandbox: dict[str, Any]) -> Path:
    (folder / "evals" / "base").mkdir(parents=True)
    for name, content in BASE.items():
        (folder / "evals" / "base" / name).write_bytes(content)
    (folder / "evals" / "odd.eval.py").write_text(EVAL)
    (folder / "own_agent.py").write_text(AGENT)
    arms = {"own": {"adapter": "python", "entry": "own_agent:worker"}}
    document = {"schema_version": 1, "name": "odd-changes", "sandbox": sandbox, "arms": arms}
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


def applied(folder: Path, changes: list[dict[str, Any]]) -> Path:
    """A clean copy of what was there before the agent, with all patches applied."""
    before = {**BASE, "edited": b"one\ndirty\n", "sub/inner": b"in\n", "broken/inner": b"in\n"}
    for name, content in before.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    patch = "".join(change["patch"] for change in changes if change["patch"] is not None)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch.encode(), check=True)
    return folder


def facts(folder: Path, name: str) -> tuple[bytes, bool] | str | None:
    """The content of a file and whether it can be executed, where a link leads, or None."""
    path = folder / name
    if path.is_symlink():
        return os.readlink(path)
    return (path.read_bytes(), os.access(path, os.X_OK)) if path.exists() else None


@pytest.mark.parametrize("place", PLACES)
def test_odd_changes_are_seen_as_what_they_are(orchestrate: Orchestrate, tmp_path: Path, place: str) -> None:
    if PLACES[place]["backend"] not in sandbox_factories():
        pytest.skip("the backend bubblewrap is not installed")
    folder = project(tmp_path / "project", PLACES[place])
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=folder)
    run = ended.values[-1]["run"]["id"]
    assert ended.code == 0, orchestrate("show", run, "0", "--diagnostics").out
    (shown,) = orchestrate("show", run, "0", "--json").values
    found = shown["attempt"]["changes"]
    assert (found["error"], found["gap"]) == (None, None)
    worked, looked = found["windows"]
    assert (worked["by"], looked["changes"], worked["omitted"], worked["unread"]) == ("agent", [], 0, [])
    changes = worked["changes"]
    assert [(each["kind"], each["path"], each["binary"]) for each in changes] == FOUND
    assert [each["path"] for each in changes if each["ignored"]] == ["ignored.log"]
    assert [each["path"] for each in changes if each["patch"] is None] == ["big"]

    clean = applied(tmp_path / "clean", changes)
    for _, name, _ in FOUND[1:]:
        assert facts(clean, name) == facts(folder / "after", name), name
