"""The suites of a run, and what their own criteria came to: kept exactly, replaced whole, carried with the run."""

from __future__ import annotations

from pathlib import Path

from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.planned import PlannedSuite
from evalfleet.store.suites import suite_documents, suite_results, write_suite_results
from evalfleet.store.transfer import export_run, import_run
from tests.integration.store.samples import started

WEIRD = {"text": "nul \0, lone \ud800", "numbers": [2**70, 0.1]}
SUITE = PlannedSuite(id="checkout", document={"schemaVersion": 1, "id": "checkout", "metadata": WEIRD})
RESULTS = {("checkout", "big"): [{"id": "all-ran", "passed": False, "evidence": WEIRD}]}


async def test_a_run_keeps_its_suites_as_they_were_planned(database: str) -> None:
    other = PlannedSuite(id="alphabetically-first", document={"id": "alphabetically-first"})
    run, recorder = await started(database, 2, suites=(SUITE, other))
    await recorder.close()
    found = await suite_documents(database, run.id)
    assert list(found.items()) == [(SUITE.id, SUITE.document), (other.id, other.document)]
    assert await suite_results(database, run.id) == {}
    assert await suite_documents(database, "another") == {}


async def test_results_are_kept_by_arm_and_replaced_when_they_are_found_again(database: str) -> None:
    run, recorder = await started(database, 2, suites=(SUITE,))
    await recorder.close()
    await write_suite_results(database, run.id, RESULTS)
    await write_suite_results(database, run.id, {("checkout", "small"): []})
    assert await suite_results(database, run.id) == {("checkout", "small"): [], **RESULTS}
    await write_suite_results(database, run.id, {("checkout", "big"): [{"id": "all-ran", "passed": True}]})
    assert (await suite_results(database, run.id))["checkout", "big"] == [{"id": "all-ran", "passed": True}]
    await write_suite_results(database, run.id, {("checkout", "no such arm"): []})
    assert len(await suite_results(database, run.id)) == 2


async def test_an_exported_run_takes_its_suites_along(database: str, other_database: str, tmp_path: Path) -> None:
    run, recorder = await started(database, 2, suites=(SUITE,))
    await recorder.close()
    await write_suite_results(database, run.id, RESULTS)
    await export_run(database, run.id, tmp_path / "run.evalfleet", FileArtifacts(str(tmp_path)))
    await import_run(other_database, tmp_path / "run.evalfleet", FileArtifacts(str(tmp_path)))
    assert await suite_documents(other_database, run.id) == {SUITE.id: SUITE.document}
    assert await suite_results(other_database, run.id) == RESULTS
