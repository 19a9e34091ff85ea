"""Whatever is wrong with what a person wrote: exit code 2, a line for each mistake, and the place in each line."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from evalfleet import api
from evalfleet.cli.application import Application
from evalfleet.cli.main import invoke
from evalfleet.cli.starter_project import FILES
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.plugins import adapter_factories, sandbox_factories

MALFORMED = sorted((Path(__file__).parents[2] / "data" / "experiments" / "malformed").glob("*.yaml"))

BASE: Mapping[str, Any] = {
    "schema_version": 1,
    "name": "weather",
    "description": "what it is about",
    "evals": {"select": ["weather"], "tags": ["smoke"], "exclude": ["sql"], "limit": 5, "seed": 7},
    "repetitions": 3,
    "reuse": "none",
    "arms": {
        "mine": {
            "adapter": "python",
            "model": "gpt-5-mini",
            "entry": "my_agent:weather_agent",
            "description": "careful",
            "target": {"id": "checkout", "fingerprint": "abc"},
            "sandbox": {"backend": "local", "setup": ["true"], "env_from": ["KEY"]},
        },
        "other": {"adapter": "http", "url": "https://example.org/chat"},
    },
    "matrix": {"flags.prompt": ["concise", "thorough"]},
    "sandbox": {"backend": "local", "resources": {"cpus": 1, "memory": "1GiB", "pids": 256}, "network": "none"},
    "limits": {"concurrency": 8, "sandboxes": 4, "attempt_timeout": "20m", "turn_timeout": "5m", "max_failures": 9},
    "budget": {"wall": "6h"},
    "prices": {"local": {"input": 1.5, "output": 3, "cache_read": 0.1, "cache_write": 2}},
    "retry": {"max_attempts": 3, "on": ["sandbox", "provider"]},
    "writes": {"allow_external": False},
    "accept": {"pass_rate": {"min": 0.9}, "arms": ["mine-concise"], "allow_skips": True},
    "reporters": ["junit"],
    "isolation": "worker",
}

#: Where every key is a name that somebody gave, so that no spelling of it is wrong.
NAMED = {("arms",), ("matrix",), ("prices",)}

Keys = tuple[str, ...]


def objects(value: Any, at: Keys = ()) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """Every object of the experiment with where it stands."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        yield at, found
        for key, item in found.items():
            yield from objects(item, (*at, key))


def changed(at: Keys, key: str, new: Any = None, *, name: str | None = None) -> str:
    """The experiment with one value, or one key's name, replaced."""
    experiment = copy.deepcopy(dict(BASE))
    place: dict[str, Any] = experiment
    for step in at:
        place = place[step]
    items = list(place.items())
    place.clear()
    for old, value in items:
        place[name if old == key and name else old] = new if old == key and name is None else value
    return json.dumps(experiment, indent=1)


def mutations() -> Iterator[tuple[str, str | bytes]]:
    """Experiments that are wrong in one place each, by what is wrong with them."""
    for at, found in objects(dict(BASE)):
        for key, value in found.items():
            where = ".".join((*at, key))
            if at not in NAMED:
                yield f"misspelt {where}", changed(at, key, name=f"{key}_")
            wrong = [{"unexpected": [1]}] if not isinstance(value, dict) else ["text", [1], 7]
            wrong += [-1, "many"] if isinstance(value, (int, float)) and key != "seed" else []
            wrong += [True] if isinstance(value, (int, float)) and not isinstance(value, bool) else []
            wrong += ["alone", [{"a": 1}]] if isinstance(value, list) and at != ("matrix",) else []
            for number, new in enumerate(wrong):
                yield f"wrong {where} {number}", changed(at, key, new)
    text = json.dumps(BASE, indent=1)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.search(r'": ("[^"]*"|[0-9.]+|false|true),?$', line):
            repeated = [*lines[:number], f"{line.rstrip(',')},", *lines[number:]]
            yield f"twice {line.strip()}", "\n".join(repeated)
    for offset in range(1, len(text), len(text) // 12):
        yield f"cut at {offset}", text[:offset]
        yield f"NUL at {offset}", f"{text[:offset]}\0{text[offset:]}"
        yield f"no UTF-8 at {offset}", text[:offset].encode() + b"\xff" + text[offset:].encode()


MUTATIONS = dict(mutations())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter project; tests write their experiments beside its own."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def orchestrate(*arguments: str | Path) -> int:
    return invoke([str(argument) for argument in arguments], Application(lambda: cast("Any", api)))


def refused_with_places(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = orchestrate("plan", path)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()
    for line in err.splitlines():
        assert re.fullmatch(rf"error: {re.escape(str(path))}:\d+:\d+: .+ \[[A-Z_]+\]", line), line


def test_the_experiment_that_the_mutations_start_from_is_fine(project: Path) -> None:
    path = project / "base.yaml"
    path.write_text(json.dumps(BASE, indent=1), encoding="utf-8")
    loaded = load_experiment(path, {}, adapter_factories(), backends=sandbox_factories())
    assert [arm.name for arm in loaded.arms] == ["mine-concise", "mine-thorough", "other-concise", "other-thorough"]


def test_there_are_enough_mutations() -> None:
    assert len(MUTATIONS) + len(MALFORMED) >= 200


@pytest.mark.parametrize("what", MUTATIONS)
def test_an_experiment_that_is_wrong_in_one_place_is_refused_there(
    project: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, content = project / "experiment.yaml", MUTATIONS[what]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused_with_places(path, capsys)


@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda path: path.stem)
def test_every_malformed_file_is_refused_at_a_place(
    project: Path, malformed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "experiment.yaml"
    path.write_bytes(malformed.read_bytes().replace(b"adapter: fake", b"adapter: http"))
    refused_with_places(path, capsys)


def test_programs_are_told_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "experiment.yaml"
    path.write_text(changed(("limits",), "concurrency", -1), encoding="utf-8")
    assert orchestrate("plan", path, "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    (problem,) = error["problems"]
    assert (error["exit_code"], problem["field"], problem["file"]) == (2, "limits.concurrency", str(path))
    assert path.read_text().splitlines()[problem["line"] - 1].strip().startswith('"concurrency"')


EVAL = FILES["evals/weather/brooklyn.eval.py"]
BODY = EVAL.partition("@define_eval")[2]

#: What is wrong with an eval file, and what the line has to say.
EVALS = {
    "no Python": ("def (", ":1:5: syntax error"),
    "an import that is not there": ("import no_such_module_anywhere", "no_such_module_anywhere"),
    "an error at the top": ("x = 1\nraise ValueError('not today')", ":2"),
    "nothing defined": ("x = 1", "broken.eval.py"),
    "an evaluation twice": (f"{EVAL}\n@define_eval{BODY}", "MULTIPLE_DEFINITIONS"),
    "an option misspelt": (EVAL.replace("description=", "descripton="), "descripton"),
    "tags that are no list": (EVAL.replace('["smoke"]', "5"), "tags"),
    "a body that takes nothing": (EVAL.replace("(t: T)", "()"), "broken.eval.py"),
    "no UTF-8": (b"x = '\xff'", "broken.eval.py"),
    "a NUL": (b"x = 1\0", "broken.eval.py"),
    "an exit": ("import sys\nsys.exit(3)", "broken.eval.py"),
    "a dataset that is not there": (
        EVAL.replace("import T", "import Dataset, T").replace(
            "tags=", 'dataset=Dataset.jsonl("no_rows.jsonl", id="id"), tags='
        ).replace("(t: T)", "(t: T, row)"),
        "no_rows.jsonl",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", ["list", "plan"])
@pytest.mark.parametrize("what", EVALS)
def test_an_eval_file_that_is_wrong_is_refused_by_name(
    tmp_path: Path, what: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    content, said = EVALS[what]
    broken = tmp_path / "evals" / "weather" / "broken.eval.py"
    broken.write_bytes(content if isinstance(content, bytes) else content.encode())
    target = ("list", "--project", tmp_path) if command == "list" else ("plan", tmp_path / "experiment.yaml")
    code = orchestrate(*target)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    for line in err.splitlines():
        assert line.startswith(f"error: {tmp_path}") and said in line, line


#: Command lines that can't be meant, and what the line has to say.
COMMAND_LINES = {
    ("frobnicate",): "frobnicate",
    ("sumbit", "x.yaml"): "did you mean 'submit'",
    ("submit",): "EXPERIMENT",
    ("submit", "no-such.yaml"): "no-such.yaml",
    ("submit", "."): "EXPERIMENT",
    ("submit", "{experiment}", "--lanes", "0"): "--lanes",
    ("submit", "{experiment}", "--lanes", "many"): "--lanes",
    ("submit", "{experiment}", "--set", "limits.concurrency"): "limits.concurrency",
    ("submit", "{experiment}", "--set", "=3"): "=3",
    ("submit", "{experiment}", "--set", "limits.concurency=3"): "'concurrency'",
    ("submit", "{experiment}", "--set", "limits.concurrency=0"): "limits.concurrency",
    ("submit", "{experiment}", "--set", "arms.mine.entry=x:y"): "arms",
    ("submit", "{experiment}", "--set", "repetitions=2", "--set", "repetitions=3"): "repetitions",
    ("submit", "{experiment}", "--no-such-option"): "--no-such-option",
    ("submit", "{experiment}", "--arm", "minne"): "minne",
    ("plan", "{experiment}", "wether"): "wether",
    ("plan", "{experiment}", "--arm", "nobody"): "nobody",
    ("list", "wether", "--project", "{project}"): "wether",
    ("list", "--project", "no/such/folder"): "no/such/folder",
    ("report", "x", "--format", "pdf"): "pdf",
    ("report", "x", "--format", ","): "text",
    ("report", "x", "--format", "md,junit"): "-o",
    ("show", "x", "--status", "fine"): "fine",
    ("show", "x", "--attempt", "0"): "--attempt",
    ("resume", "x", "--retry", "passed"): "passed",
    ("delete", "x"): "--yes",
    ("runs", "--limit", "-1"): "--limit",
    ("db", "downgrade"): "downgrade",
}


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=" ".join)
def test_a_command_line_that_cannot_be_meant_is_refused_in_one_line(
    project: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "experiment.yaml"
    path.write_text(FILES["experiment.yaml"], encoding="utf-8")
    code = orchestrate(*(each.format(experiment=path, project=project) for each in arguments))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ") and COMMAND_LINES[arguments] in line, line


@pytest.mark.parametrize("arguments", [(), ("db",)], ids=" ".join)
def test_a_name_alone_is_answered_with_its_help(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert orchestrate(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Usage: {' '.join(('orchestrate', *arguments))} [OPTIONS] COMMAND")
    assert "Commands:" in err.splitlines()
