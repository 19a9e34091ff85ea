"""Sandboxes that outlive who makes them: a row first, so that they are found and removed whenever their maker dies."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.sandboxes.other_backends import AGENT, with_backends
from tests.integration.store.sql import execute, rows

if TYPE_CHECKING:
    import subprocess

    from tests.acceptance.cli.conftest import Orchestrate

EVAL = """
from evalfleet import *

@define_eval(description="Runs a command.")
async def body(t):
    await t.send("true")
"""


@pytest.fixture
def command(orchestrate: Orchestrate, tmp_path: Path) -> Iterator[Orchestrate]:
    (tmp_path / "package").mkdir()
    yield with_backends(orchestrate, tmp_path / "package")
    asyncio.run(execute(orchestrate.database_url, "TRUNCATE sandboxes"))


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return tmp_path / "package" / "engine"


def project(folder: Path, image: str) -> Path:
    folder.mkdir()
    (folder / "evals").mkdir()
    (folder / "evals" / "command.eval.py").write_text(EVAL)
    (folder / "my_agents.py").write_text(AGENT)
    document = {
        "schema_version": 1,
        "name": "announced",
        "sandbox": {"backend": "lasting", "image": image},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


def states(command: Orchestrate) -> list[str]:
    found = asyncio.run(rows(command.database_url, "SELECT state::text FROM sandboxes ORDER BY created_at"))
    return [state for (state,) in found]


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 100, "nothing happened"
        time.sleep(0.05)


def killed(command: Orchestrate, folder: Path, engine: Path, state: str) -> None:
    """A run that was killed when its one sandbox was there and its row in this state."""
    with command.start("submit", "experiment.yaml", "--inline", cwd=folder) as process:
        until(lambda: list(engine.glob("*")) != [] and states(command) == [state], process)
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(("image", "state"), [("slow", "announced"), ("quick", "made")])
def test_whenever_its_maker_dies_it_is_found_by_its_owner_and_removed(
    command: Orchestrate, tmp_path: Path, engine: Path, image: str, state: str
) -> None:
    killed(command, project(tmp_path / "project", image), engine, state)
    (value,) = command("sandboxes", "--json").values
    (view,) = value["sandboxes"]
    assert (view["standing"], view["eval_id"], view["alive"]) == ("orphan", "command", False)
    # two at once do no harm
    reapers = [command.start("sandboxes", "--reap", "--json") for _ in range(2)]
    removed = [view for reaper in reapers for view in json.loads(reaper.communicate(timeout=100)[0])["removed"]]
    assert [reaper.returncode for reaper in reapers] == [0, 0]
    assert {view["id"] for view in removed} == {view["id"]}
    assert (list(engine.glob("*")), states(command)) == ([], ["gone"])


def test_the_next_run_removes_it_and_ends_its_own(command: Orchestrate, tmp_path: Path, engine: Path) -> None:
    folder = project(tmp_path / "project", "quick")
    killed(command, folder, engine, "made")
    (left,) = engine.glob("*")
    with command.start("submit", "experiment.yaml", "--inline", cwd=folder) as process:
        until(lambda: states(command) == ["gone", "made"], process)
        assert left not in engine.glob("*")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    assert (list(engine.glob("*")), states(command)) == ([], ["gone", "gone"])


def test_a_backend_that_does_not_answer_is_spoken_of_where_it_has_sandboxes(
    command: Orchestrate, tmp_path: Path, engine: Path
) -> None:
    away = {"EVALFLEET_CONTAINER_ENGINE": "docker", "KUBECONFIG": str(tmp_path / "none")}
    alone = dataclasses.replace(command, variables={**command.variables, **away})
    listed = alone("sandboxes")
    assert (listed.out, listed.err) == ("there are none\n", "")
    killed(command, project(tmp_path / "project", "quick"), engine, "made")
    asyncio.run(execute(command.database_url, "UPDATE sandboxes SET backend = 'container'"))
    listed = alone("sandboxes")
    assert listed.err.startswith("nothing is known of sandboxes of container, which does not work here: ")
    assert "kubernetes" not in listed.err


def test_another_record_stores_are_never_touched(
    command: Orchestrate, tmp_path: Path, engine: Path, other_database: Any
) -> None:
    killed(command, project(tmp_path / "project", "quick"), engine, "made")
    elsewhere = dataclasses.replace(command, database_url=other_database)
    listed = elsewhere("sandboxes")
    assert listed.out == "there are none\n"
    assert "left alone: 1 sandbox of other record stores" in listed.err
    assert elsewhere("sandboxes", "--reap", "--force", "--kept", "--json").values == [{"removed": []}]
    assert len(list(engine.glob("*"))) == 1
    assert len(command("sandboxes", "--reap", "--json").values[0]["removed"]) == 1
