"""Rows of odd but sound files in whole runs: each reaches its attempt exactly, and comes back from store and export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.cli.conftest import Orchestrate

MARK = b"\xef\xbb\xbf"
FILES: dict[str, tuple[bytes, str]] = {
    "marked.jsonl": (MARK + b'{"id": "a1", "input": "2+2"}\n{"id": "a2", "input": "3+3", "more": {"k": 1}}\n', ""),
    "marked.csv": (MARK + b"id,input\r\na1,2+2\r\n", ""),
    "bare.csv": (b'id,input\na1,{"answer":"x"}\na2,"{""answer"":""x""}"\n', ""),
    "cells.csv": (b'id,input\r\na1,"line1\nline2, and ""q"""\r\na2,"x\ry"\r\n', ""),
    "long.csv": (b"id,input\na1," + b"x" * 200_000 + b"\n", ""),
    "old.csv": (b"id,input\r\na1,It\x92s 5 \x96 6\r\n", ', encoding="windows-1252"'),
    "ragged.jsonl": (
        b'{"id": "a1", "more": {}}\n{"id": "a2", "more": {"k": 1, "l": []}}\n{"id": "a3", "more": {"k": "1", '
        b'"l": ["x"]}}\n{"id": "a4"}\n{"id": "a5", "more": null}\n',
        "",
    ),
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "marked.jsonl": [{"input": "2+2"}, {"input": "3+3", "more": {"k": 1}}],
    "marked.csv": [{"input": "2+2"}],
    "bare.csv": [{"input": '{"answer":"x"}'}] * 2,
    "cells.csv": [{"input": 'line1\nline2, and "q"'}, {"input": "x\ry"}],
    "long.csv": [{"input": "x" * 200_000}],
    "old.csv": [{"input": "It’s 5 – 6"}],
    "ragged.jsonl": [
        {"more": {}},
        {"more": {"k": 1, "l": []}},
        {"more": {"k": "1", "l": ["x"]}},
        {},
        {"more": None},
    ],
}
EVAL = """
import json
from evalfleet import Dataset, T, define_eval, equals

@define_eval(dataset=Dataset.{kind}("{file}", id="id"{more}))
async def rows(t: T, row: dict) -> None:
    said = json.dumps(row)
    t.check((await t.send(said)).reply, equals(said))
"""


def project(folder: Path) -> None:
    (folder / "evals").mkdir()
    for file, (data, more) in FILES.items():
        kind = file.rpartition(".")[2]
        (folder / "evals" / file).write_bytes(data)
        text = EVAL.format(kind=kind, file=file, more=more)
        (folder / "evals" / f"{file.replace('.', '-')}.eval.py").write_text(text, encoding="utf-8")
    experiment = "schema_version: 1\nname: rows\narms: {parrot: {adapter: scripted}}\n"
    (folder / "experiment.yaml").write_text(experiment, encoding="utf-8")


def heard(orchestrate: Orchestrate, run: str) -> dict[str, Any]:
    """By eval the row that its agent was sent, as the record store has it."""
    found: dict[str, Any] = {}
    for file, rows in ROWS.items():
        for number in range(1, len(rows) + 1):
            name = f"{file.replace('.', '-')}/a{number}"
            shown = orchestrate("show", run, name, "--json").values[0]
            found[name] = json.loads(shown["attempt"]["turns"][0]["input"]["text"])
    return found


def test_rows_reach_their_attempts_exactly_and_come_back_from_an_export(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    project(tmp_path)
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    run = ended.values[-1]["run"]["id"]
    expected = {
        f"{file.replace('.', '-')}/a{number}": {"id": f"a{number}", **row}
        for file, rows in ROWS.items()
        for number, row in enumerate(rows, 1)
    }
    assert orchestrate("export", run, "--output", str(tmp_path / "run.evalfleet")).code == 0
    assert orchestrate("delete", run, "--yes").code == 0
    assert orchestrate("import", str(tmp_path / "run.evalfleet")).code == 0
    assert heard(orchestrate, run) == expected

    for file in ("marked.jsonl", "marked.csv"):
        (tmp_path / "evals" / file).write_bytes(FILES[file][0].removeprefix(MARK))
    planned = orchestrate("plan", "experiment.yaml", "--reuse", "--cases", "--json", cwd=tmp_path)
    assert {value["eval"]: value["action"] for value in planned.values if "eval" in value} == dict.fromkeys(
        expected, "carry"
    ), "a byte order mark is no part of a row"
