from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evalfleet.api.options import SideChoice
from evalfleet.model.comparison import Finding, Side
from evalfleet.reports.comparison import compare_sides
from tests.unit.reports.test_comparison import outcomes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

LOST = outcomes("7f3", "+" * 30), outcomes("8g4", "-" * 30)


@pytest.fixture
def compared(shell: Shell) -> Shell:
    shell.api.compared = compare_sides([LOST])
    return shell


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        (["7f3"], SideChoice("7f3"), None),
        (["7f3", "8g4"], SideChoice("7f3"), SideChoice("8g4")),
        (["7f3:small", "8g4:of: two"], SideChoice("7f3", "small"), SideChoice("8g4", "of: two")),
    ],
)
def test_sides_are_runs_with_or_without_an_arm(
    compared: Shell, arguments: list[str], first: SideChoice, second: SideChoice | None
) -> None:
    assert compared("compare", *arguments) == 0
    assert compared.api.calls == [("compare", first, second)]


def test_people_see_the_first_flips_and_all_when_they_ask(compared: Shell) -> None:
    compared("compare", "7f3", "8g4")
    assert "  … 10 more: --all shows them" in compared.out.splitlines()
    compared("compare", "7f3", "8g4", "--all")
    assert "sums/0029 #1" in compared.out and "more" not in compared.out


def test_markdown_is_a_table_and_programs_get_one_document(compared: Shell) -> None:
    compared("compare", "7f3", "8g4", "--format", "markdown")
    assert compared.out.startswith("| first | second | evals |")
    compared("compare", "7f3", "8g4", "--json")
    (value,) = compared.values
    (comparison,) = value["comparisons"]
    assert (comparison["finding"], comparison["difference"], len(comparison["flips"])) == ("worse", -1.0, 30)


@pytest.mark.parametrize(
    ("finding", "code"), [(Finding.WORSE, 1), (Finding.INCONCLUSIVE, 5), (Finding.NO_DIFFERENCE, 0)]
)
def test_only_a_gate_fails(compared: Shell, finding: Finding, code: int) -> None:
    compared.api.compared = [replace(each, finding=finding) for each in compared.api.compared]
    assert compared("compare", "7f3", "8g4") == 0
    assert compared("compare", "7f3", "8g4", "--gate") == code


def test_a_gate_within_one_run_is_refused(compared: Shell) -> None:
    assert compared("compare", "7f3", "--gate") == 2
    assert compared.err.startswith("error: --gate needs a second side")


def test_nothing_to_compare_is_said(shell: Shell) -> None:
    shell.api.compared = compare_sides([(Side(run="7f3", arm="a", cases=[], judged={}),) * 2])
    assert shell("compare", "7f3", "8g4", "--gate") == 5
    assert "inconclusive, no case has an answer on both sides" in shell.out
