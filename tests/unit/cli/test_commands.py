from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from evalfleet.api.options import DeleteOptions, ResumeOptions, SubmitOptions
from evalfleet.cli.report_files import write_pieces
from evalfleet.errors import StoreError
from evalfleet.model.run_events import EventCursor, RunEvent, RunEventType
from evalfleet.model.verdict import CaseStatus, RunStatus, Verdict
from tests.unit.cli.fake_api import FakeRun, case, detail, progress

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

AddRun = Callable[[FakeRun], FakeRun]
HOSTILE = "\x1b[2J sunny"


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    path = tmp_path / "experiment.yaml"
    path.write_text("schema_version: 1\n")
    return str(path)


@pytest.fixture
def mixed(with_run: AddRun) -> FakeRun:
    cases = [case(0), case(1), case(2, CaseStatus.FAILED, message=f"wanted rain, got {HOSTILE}", reply=HOSTILE)]
    return with_run(
        FakeRun(cases, {0: detail(0, "sunny"), 1: detail(1, "sunny"), 2: detail(2, HOSTILE, Verdict.FAILED)})
    )


@pytest.mark.parametrize(
    ("status", "cases", "code"),
    [
        (RunStatus.COMPLETED, [CaseStatus.PASSED], 0),
        (RunStatus.COMPLETED, [CaseStatus.PASSED, CaseStatus.FAILED], 1),
        (RunStatus.LIMITED, [CaseStatus.PASSED, CaseStatus.PENDING], 3),
        (RunStatus.CANCELLED, [CaseStatus.PASSED, CaseStatus.PENDING], 130),
    ],
)
def test_submit_exits_as_the_run_ended(
    status: RunStatus, cases: list[CaseStatus], code: int, shell: Shell, with_run: AddRun, experiment: str
) -> None:
    run = with_run(FakeRun([case(n, each) for n, each in enumerate(cases)]))
    run.run = replace(run.run, status=status)
    assert shell("submit", experiment) == code
    assert shell.err.splitlines()[0] == "run 7f3k2m0q1x"
    assert run.opened == run.closed == 1


def test_an_undecidable_acceptance_exits_5(shell: Shell, with_run: AddRun, experiment: str) -> None:
    run = with_run(FakeRun([case(0), case(1, CaseStatus.ERRORED)]))
    run.run = replace(run.run, experiment={"accept": {"pass_rate": {"min": 0.9}}})
    assert shell("submit", experiment) == 5
    assert "inconclusive: arm small: pass rate lies between 0.5000 and 1.0000" in shell.out


def test_submit_passes_on_what_was_asked(shell: Shell, mixed: FakeRun, experiment: str) -> None:
    shell(
        "submit", experiment, "sql", "weather/", "--set", "limits.concurrency=8", "--set", "budget.wall=1h",
        "--arm", "small", "--reuse", "--address", "ray://head:10001", "--workers", "3", "--lanes", "16",
        "--idempotency-key", "k1", "--allow-empty",
    )  # fmt: skip
    assert shell.api.calls == [
        (
            "submit",
            "experiment.yaml",
            ("sql", "weather/"),
            SubmitOptions(
                overrides={"limits.concurrency": "8", "budget.wall": "1h"},
                arms=("small",),
                reuse=True,
                address="ray://head:10001",
                workers=3,
                lanes=16,
                idempotency_key="k1",
                allow_empty=True,
            ),
        )
    ]


def test_submit_prints_progress_lines_when_nobody_watches(shell: Shell, mixed: FakeRun, experiment: str) -> None:
    shell.api.reported = [progress(0, 0.0), progress(4, 3.0), progress(8, 12.0, failures_by_kind={"judge": 2})]
    shell("submit", experiment)
    assert shell.err.splitlines() == [
        "run 7f3k2m0q1x",
        "0/10 settled · 0 passed · 0 failed · 0 errored · 2 running · 2.0/s · 5.0 s left",
        "8/10 settled · 8 passed · 0 failed · 0 errored · 2 running · 2.0/s · 1.0 s left · judge 2",
    ]


def test_an_interrupted_submit_says_how_to_go_on(shell: Shell, mixed: FakeRun, experiment: str) -> None:
    shell.api.interrupted = True
    assert shell("submit", experiment) == 130
    assert shell.err.splitlines() == [
        "run 7f3k2m0q1x",
        "run 7f3k2m0q1x keeps what it settled: orchestrate resume 7f3k2m0q1x goes on",
        "error: cancelled",
    ]


STARTED = RunEvent(sequence=1, type=RunEventType.RUN_STARTED, run="7f3k2m0q1x", cursor=EventCursor(1, 0, 1), at=9.0)
COMPLETED = RunEvent(
    sequence=2,
    type=RunEventType.CASE_COMPLETED,
    run="7f3k2m0q1x",
    cursor=EventCursor(2, 1, 1),
    case=0,
    eval_id="sql/0000",
    arm="small",
    repetition=0,
    status=CaseStatus.SKIPPED,
)
EVENTS = [
    {"event": "run.started", "sequence": 1, "cursor": "1.0.1", "run": "7f3k2m0q1x", "at": 9.0},
    {
        "event": "case.completed", "sequence": 2, "cursor": "2.1.1", "run": "7f3k2m0q1x", "case": 0,
        "eval": "sql/0000", "arm": "small", "repetition": 0, "status": "skipped",
    },
]  # fmt: skip


def test_submit_json_is_a_line_an_event_and_then_the_summary(shell: Shell, mixed: FakeRun, experiment: str) -> None:
    shell.api.reported, shell.api.events_told = [progress(3)], [STARTED, COMPLETED]
    assert shell("submit", experiment, "--json") == 1
    *events, document = shell.values
    assert events == EVENTS
    assert (document["run"]["id"], document["accepted"], document["totals"]["failed"]) == ("7f3k2m0q1x", False, 1)
    assert "sunny" not in shell.out


def test_try_shows_the_transcript_and_runs_inline(shell: Shell, mixed: FakeRun, experiment: str) -> None:
    assert shell("try", experiment, "sql/0002", "--arm", "small") == 1
    assert shell.api.calls[0][3] == SubmitOptions(inline=True, arms=("small",))
    assert "  assistant \\x1b[2J sunny" in shell.out
    assert "  ✓ check · value  evals/sql.eval.py:7" in shell.out
    assert "\x1b" not in shell.out


def test_try_json_has_the_whole_evidence_and_ends_with_the_report(
    shell: Shell, mixed: FakeRun, experiment: str
) -> None:
    shell("try", experiment, "--json")
    *cases, report = shell.values
    assert [each["event"] for each in cases] == ["case"] * 3
    assert cases[2]["attempt"]["turns"][0]["events"][1]["text"] == HOSTILE
    assert report["event"] == "report"


def test_resume_passes_on_what_was_asked(shell: Shell, mixed: FakeRun) -> None:
    shell("resume", "7f3", "--retry", "errored", "--retry", "failed", "--steal", "--set", "limits.concurrency=2")
    wanted = ResumeOptions(
        retry=(CaseStatus.ERRORED, CaseStatus.FAILED), steal=True, overrides={"limits.concurrency": "2"}
    )
    assert shell.api.calls == [("resume", "7f3", wanted)]


def test_cancel(shell: Shell, mixed: FakeRun) -> None:
    assert shell("cancel", "7f3") == 0
    assert shell.out == "run 7f3k2m0q1x has ended already\n"
    mixed.run = replace(mixed.run, status=RunStatus.RUNNING)
    assert shell("cancel", "7f3", "--json") == 0
    assert shell.values == [{"run": "7f3k2m0q1x", "cancel_requested": True}]
    assert shell("cancel", "7f3") == 0
    assert shell.out == "run 7f3k2m0q1x is asked to stop: orchestrate status 7f3k2m0q1x\n"


def test_delete_never_happens_unasked(shell: Shell, mixed: FakeRun) -> None:
    assert shell("delete", "7f3") == 2
    assert shell.api.calls == []
    assert shell.err == "error: deleting can't be undone: say --yes\n"
    assert shell("delete", "7f3", "--yes", "--copy-evidence") == 0
    assert shell.api.calls == [("delete", "7f3", DeleteOptions(copy_evidence=True))]


def test_status_shows_live_counters_of_a_running_run_only(shell: Shell, mixed: FakeRun) -> None:
    mixed.live = progress(3)
    shell("status", "7f3")
    assert "settled" not in shell.out
    mixed.run = replace(mixed.run, status=RunStatus.RUNNING)
    shell("status")
    assert shell.out.splitlines()[-1].startswith("3/10 settled")
    shell("status", "--json")
    assert shell.values[0]["progress"]["settled"] == 3
    mixed.run = replace(mixed.run, interrupted=True)
    shell("status")
    assert "running (interrupted: orchestrate resume 7f3k2m0q1x)" in shell.out


def test_status_without_any_run_says_what_to_do(shell: Shell) -> None:
    assert shell("status") == 2
    assert shell.err == "error: there is no run yet (orchestrate submit EXPERIMENT starts one)\n"


def test_watch_json_is_a_line_an_event_and_then_the_report(shell: Shell, mixed: FakeRun) -> None:
    shell.api.events_told = [STARTED, COMPLETED]
    assert shell("watch", "7f3", "--json", "--after", "0.0.0") == 1
    *events, report = shell.values
    assert (events, report["event"], shell.api.calls) == (EVENTS, "report", [("events", "0.0.0")])


def test_watch_shows_the_counters_to_people(shell: Shell, mixed: FakeRun) -> None:
    shell.api.reported = [progress(1)]
    assert shell("watch", "7f3") == 1
    assert shell.err.startswith("1/10 settled")


def test_runs(shell: Shell, mixed: FakeRun) -> None:
    shell("runs")
    assert re.fullmatch(
        r"run +name +status +cases +created \(UTC\) +took\n"
        r"7f3k2m0q1x +sweep +completed +3 +2025-06-15T15:06:40 +10\.0 s\n",
        shell.out,
    )
    shell("runs", "--json")
    assert [value["id"] for value in shell.values] == ["7f3k2m0q1x"]


def test_no_runs_is_an_empty_listing(shell: Shell) -> None:
    assert shell("runs", "--json") == 0
    assert shell.out == ""


def test_show_lists_cases(shell: Shell, mixed: FakeRun) -> None:
    shell("show", "7f3", "--status", "failed")
    header, row = shell.out.splitlines()
    assert header.split()[:4] == ["case", "arm", "eval", "result"]
    assert row.split()[:5] == ["2", "small", "sql/0002", "#1", "failed"]
    assert "\x1b" not in shell.out


def test_show_json_leaves_agent_text_out_unless_asked(shell: Shell, mixed: FakeRun) -> None:
    shell("show", "7f3", "--json")
    assert [value["case"] for value in shell.values] == [0, 1, 2]
    assert "sunny" not in shell.out
    shell("show", "7f3", "--json", "--text")
    assert shell.values[2]["reply"] == HOSTILE


@pytest.mark.parametrize("reference", ["2", "sql/0002"])
def test_show_one_case(reference: str, shell: Shell, mixed: FakeRun) -> None:
    assert shell("show", "7f3", reference) == 0
    assert shell.out.startswith("sql/0002 #1 · arm small · attempt 1 · failed\n")
    assert "  ✓ check · value  evals/sql.eval.py:7" in shell.out


def test_show_one_case_that_never_ran(shell: Shell, with_run: AddRun) -> None:
    with_run(
        FakeRun([case(0, CaseStatus.BLOCKED, attempts=0, code="EXTERNAL_WRITES_NOT_AUTHORIZED", message="no\twrites")])
    )
    assert shell("show", "7f3", "0") == 0
    assert shell.out == "sql/0000 #1 · arm small · blocked (EXTERNAL_WRITES_NOT_AUTHORIZED)\n  no\twrites\n"
    shell("show", "7f3", "0", "--json")
    assert shell.values[0]["attempt"] is None


def test_show_one_case_that_is_carried(shell: Shell, with_run: AddRun) -> None:
    with_run(FakeRun([case(0, attempts=0, carried_from=("other", 7))], {0: detail(0, "said in the other run")}))
    assert shell("show", "7f3", "0") == 0
    assert "  carried from run other" in shell.out
    assert "assistant said in the other run" in shell.out


def test_show_parts(shell: Shell, mixed: FakeRun) -> None:
    shell("show", "7f3", "2", "--assertions")
    assert "assistant" not in shell.out
    assert "check · value" in shell.out


def test_show_an_ambiguous_case_names_the_candidates(shell: Shell, mixed: FakeRun) -> None:
    assert shell("show", "7f3", "sql") == 2
    assert shell.err == (
        "error: 'sql' fits several cases: give the number of one: "
        "0 (small sql/0000 #1), 1 (small sql/0001 #1), 2 (small sql/0002 #1)\n"
    )


def test_an_exact_id_is_found_behind_any_number_that_start_so(shell: Shell, with_run: AddRun) -> None:
    longer = [case(n, eval_id=f"sql/1{n:03}") for n in range(100)]
    with_run(FakeRun([*longer, case(100, eval_id="sql/1")], {100: detail(100, "found")}))
    assert shell("show", "7f3", "sql/1") == 0
    assert "assistant found" in shell.out


def test_show_an_unknown_case_says_where_to_look(shell: Shell, mixed: FakeRun) -> None:
    assert shell("show", "7f3", "99") == 2
    assert shell.err == "error: run 7f3k2m0q1x has no case '99' (orchestrate show 7f3k2m0q1x lists them)\n"


def test_show_the_first_divergence(shell: Shell, mixed: FakeRun) -> None:
    shown = mixed.details[2]
    unmet = tuple(replace(row, holds=False) for row in shown.assertions)
    mixed.details = {**mixed.details, 2: replace(shown, assertions=unmet)}
    assert shell("show", "7f3", "2", "--first-divergence") == 0
    assert [line[2:18].strip() for line in shell.out.splitlines()][-7:] == [
        "1 input", "2 context", "3 interpretation", "4 authorisation", "5 capabilities", "6 state", "7 response",
    ]  # fmt: skip
    assert "\x1b" not in shell.out
    shell("show", "7f3", "2", "--first-divergence", "--json")
    (value,) = shell.values
    assert (value["case"]["case"], len(value["divergence"]["boundaries"])) == (2, 7)
    shell("show", "7f3", "0", "--first-divergence", "--json")
    assert shell.values[0]["divergence"] is None
    assert shell("show", "7f3", "--first-divergence") == 2
    assert shell.err.startswith("error: --first-divergence is of one case: name it")


def test_report_to_stdout(shell: Shell, mixed: FakeRun) -> None:
    assert shell("report", "7f3", "--format", "md") == 0
    assert shell.out.startswith("### ❌ `sweep`: not accepted\n")
    shell("report", "7f3", "--json")
    assert shell.values[0]["planned"] == 3
    shell("report", "7f3", "--format", "junit")
    assert ElementTree.fromstring(shell.out.encode()).attrib["failures"] == "1"


def test_the_whole_report_is_one_of_each_arm_or_that_of_one(shell: Shell, mixed: FakeRun) -> None:
    mixed.cases_[1] = replace(mixed.cases_[1], arm="large")
    assert shell("report", "7f3", "--format", "json") == 0
    (whole,) = shell.values
    assert whole["run"]["id"] == "7f3k2m0q1x"
    arms = whole["arms"]
    assert sum(report["summary"]["total"] for report in arms.values()) == 3
    name, report = next(iter(arms.items()))
    assert shell("report", "7f3", "--format", "json", "--arm", name) == 0
    assert shell.values == [report]
    assert shell("report", "7f3", "--arm", name) == 2
    assert "--arm goes with --format json" in shell.err


def test_a_report_file_is_checked_and_written_in_other_formats(shell: Shell, mixed: FakeRun, tmp_path: Path) -> None:
    mixed.cases_[1] = replace(mixed.cases_[1], arm="large")
    file = tmp_path / "report.json"
    assert shell("report", "7f3", "--format", "json", "-o", str(file)) == 0
    shell.api.known.clear()
    assert shell("report", "--import", str(file), "--format", "junit") == 0
    assert ElementTree.fromstring(shell.out.encode()).attrib["tests"] == "3"
    assert shell("report", "--import", str(file)) == 0
    assert shell.out.startswith("run 7f3k2m0q1x ")
    shell("report", "--import", str(file), "--json")
    assert shell.values[0]["planned"] == 3
    assert shell("report", "--import", str(file), "--format", "json", "-o", str(tmp_path / "again.json")) == 0
    assert json.loads((tmp_path / "again.json").read_text())["arms"] == json.loads(file.read_text())["arms"]
    file.write_text(file.read_text().replace('"failed": 1', '"failed": 2'))
    assert shell("report", "--import", str(file), "--json") == 2
    assert shell.values[0]["error"]["code"] == "EVALUATION_RESUME_INVALID"
    file.write_text("{")
    assert shell("report", "--import", str(file)) == 2
    assert shell.err == f"error: {file}: is no JSON (JSONDecodeError) [EVALUATION_RESUME_INVALID]\n"


@pytest.mark.parametrize("arguments", [(), ("7f3", "--import", __file__)])
def test_a_report_is_of_a_run_or_of_a_file(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell("report", *arguments) == 2
    assert "name a RUN, or a file by --import" in shell.err


def test_report_into_files(shell: Shell, mixed: FakeRun, tmp_path: Path) -> None:
    assert shell("report", "7f3", "--format", "text,json,md,junit", "-o", str(tmp_path / "out")) == 0
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == ["junit.xml", "report.json", "report.md", "report.txt"]
    assert all(path.stat().st_size for path in written)
    assert shell("report", "7f3", "--format", "junit", "-o", str(tmp_path / "ci" / "tests.xml")) == 0
    assert ElementTree.parse(tmp_path / "ci" / "tests.xml").getroot().attrib["tests"] == "3"


async def test_a_report_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "half a "
        raise StoreError("gone")

    target = tmp_path / "report.md"
    target.write_text("the one before")
    with pytest.raises(StoreError):
        await write_pieces(target, broken())
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    assert target.read_text() == "the one before"


def test_the_experiment_may_ask_for_report_files(
    shell: Shell, mixed: FakeRun, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mixed.run = replace(mixed.run, experiment={"reporters": ["junit", "markdown"]})
    assert shell("submit", experiment) == 1
    assert shell.err.splitlines()[1:] == [
        "wrote reports/7f3k2m0q1x/junit.xml",
        "wrote reports/7f3k2m0q1x/report.md",
    ]
    assert ElementTree.parse(tmp_path / "reports/7f3k2m0q1x/junit.xml").getroot().attrib["tests"] == "3"


def test_report_refuses_several_formats_on_stdout(shell: Shell, mixed: FakeRun) -> None:
    assert shell("report", "7f3", "--format", "text,md") == 2
    assert shell.err == "error: several formats need a directory: say -o DIRECTORY\n"
