"""The project as it travels: all that an eval may refer to, no secret, the same bytes for the same content."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from evalfleet.api import package
from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.options import PlanOptions
from evalfleet.api.package import BLUEPRINT, read_blueprint, write_package
from evalfleet.api.planned import Request, blueprint_of, plan_request
from evalfleet.api.shipping import check_reachable
from evalfleet.errors import ConfigurationError
from evalfleet.planning.plan import Plan
from evalfleet.settings import Settings

URL = "postgresql://eve:hunter2@db/evals"
FILES = {
    "echo_agent.py": "from evalfleet import COMPLETE_COVERAGE, Turn, agent\n\n\n@agent(coverage=COMPLETE_COVERAGE)\n"
    "async def echo(turn, ctx):\n    return Turn(reply=turn.text)\n",
    "evals/echo.eval.py": "from evalfleet import Dataset, define_eval\n\n\n"
    '@define_eval(dataset=Dataset.jsonl("ROWS", id="id"))\nasync def echo(t, row): ...\n',
    "evals/rows.jsonl": '{"id": "a"}\n',
    "sweeps/experiment.yaml": "schema_version: 1\nname: echo\n"
    "arms:\n  mine: {adapter: python, entry: 'echo_agent:echo'}\n",
    ".gitignore": "*.jsonl\n",
    ".git/config": "[core]\n",
    ".venv/lib/big.py": "x = 1\n",
    "__pycache__/a.pyc": "",
    "tool.sh": "#!/bin/sh\n",
}


def written(folder: Path, rows: str = "rows.jsonl") -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROWS", rows), encoding="utf-8")
    (folder / "tool.sh").chmod(0o755)
    return folder


async def planned(project: Path) -> tuple[Plan, RunBlueprint]:
    request = Request.of(project / "sweeps/experiment.yaml", (), PlanOptions())
    plan = await plan_request(request)
    settings = Settings(state_dir=project / "state", artifacts="s3://evals/artifacts", database_url=URL)
    return plan, blueprint_of(plan, request, "r1", settings, URL)


async def test_all_that_is_the_projects_own_travels_and_git_decides_nothing(tmp_path: Path) -> None:
    write_package(*await planned(written(tmp_path / "project")), tmp_path / "project.zip")
    with zipfile.ZipFile(tmp_path / "project.zip") as archive:
        kept = {"echo_agent.py", "evals/echo.eval.py", "evals/rows.jsonl", "sweeps/experiment.yaml", "tool.sh"}
        assert set(archive.namelist()) == {*kept, ".gitignore", BLUEPRINT}
        assert archive.getinfo("tool.sh").external_attr >> 16 & 0o777 == 0o755


async def test_no_address_and_no_path_of_this_machine_travels(tmp_path: Path) -> None:
    plan, blueprint = await planned(written(tmp_path / "project"))
    write_package(plan, blueprint, tmp_path / "project.zip")
    with zipfile.ZipFile(tmp_path / "project.zip") as archive:
        assert b"hunter2" not in archive.read(BLUEPRINT) and str(tmp_path).encode() not in archive.read(BLUEPRINT)
        archive.extractall(tmp_path / "there")
    found = read_blueprint(tmp_path / "there")
    here = {"project": str(tmp_path / "there"), "experiment_file": str(tmp_path / "there/sweeps/experiment.yaml")}
    assert found == replace(blueprint, database_url="", state_dir="", failpoint=None, **here)


async def test_the_same_content_is_the_same_package_wherever_it_lies(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_package(*await planned(written(tmp_path / name)), tmp_path / f"{name}.zip")
        os.utime(tmp_path / "one" / "echo_agent.py", (0, 0))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


async def test_a_dataset_travels_even_from_a_folder_that_is_left_out(tmp_path: Path) -> None:
    project = written(tmp_path / "project", rows="../.venv/rows.jsonl")
    (project / ".venv/rows.jsonl").write_text('{"id": "a"}\n', encoding="utf-8")
    write_package(*await planned(project), tmp_path / "project.zip")
    with zipfile.ZipFile(tmp_path / "project.zip") as archive:
        assert ".venv/rows.jsonl" in archive.namelist()
        assert ".venv/lib/big.py" not in archive.namelist()


async def test_a_dataset_of_many_files_travels_with_what_describes_it(tmp_path: Path) -> None:
    project = written(tmp_path / "project")
    eval_file = project / "evals/echo.eval.py"
    text = eval_file.read_text(encoding="utf-8")
    eval_file.write_text(
        text.replace('jsonl("rows.jsonl", id="id")', 'huggingface("../.venv/saved", split="test")'), encoding="utf-8"
    )
    saved = project / ".venv/saved"
    saved.mkdir()
    parquet.write_table(pa.table({"id": ["a"]}), saved / "rows.parquet")
    (saved / "state.json").write_text(
        '{"_data_files": [{"filename": "rows.parquet"}], "_split": "test"}', encoding="utf-8"
    )
    plan, blueprint = await planned(project)
    assert [(record.uri, record.rows) for record in plan.datasets] == [(".venv/saved#test", 1)]
    write_package(plan, blueprint, tmp_path / "project.zip")
    with zipfile.ZipFile(tmp_path / "project.zip") as archive:
        assert {".venv/saved/rows.parquet", ".venv/saved/state.json"} <= set(archive.namelist())


async def test_a_dataset_outside_of_the_project_cannot_travel(tmp_path: Path) -> None:
    project = written(tmp_path / "project", rows="../../rows.jsonl")
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"rows\.jsonl lies outside of the project"):
        write_package(*await planned(project), tmp_path / "project.zip")


async def test_what_ray_would_refuse_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = written(tmp_path / "project")
    (project / "weights.bin").write_bytes(os.urandom(200_000))
    plan, blueprint = await planned(project)
    monkeypatch.setattr(package, "PACKAGE_LIMIT", 100_000)
    with pytest.raises(
        ConfigurationError, match=r"packs to 0\.2 MiB .*the largest files are weights\.bin \(0\.2 MiB\)"
    ):
        write_package(plan, blueprint, tmp_path / "project.zip")


def test_a_folder_that_nothing_was_shipped_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no shipped run"):
        read_blueprint(tmp_path)


@pytest.mark.parametrize(
    ("address", "artifacts", "refused"),
    [
        ("http://head:8265", "/var/evals", True),
        ("http://head:8265", "s3://evals", False),
        ("http://127.0.0.1:8265", "/var/evals", False),
        ("https://localhost:8265", "/var/evals", False),
    ],
)
def test_artifacts_lie_where_both_sides_reach_them(address: str, artifacts: str, refused: bool, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, artifacts=artifacts, database_url=URL)
    if not refused:
        check_reachable(address, settings)
        return
    with pytest.raises(ConfigurationError, match="EVALFLEET_ARTIFACTS"):
        check_reachable(address, settings)
