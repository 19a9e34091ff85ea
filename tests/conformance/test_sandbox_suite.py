"""The sandbox suite catches what it is for: each planted defect fails the check that is named after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evalfleet.testing.sandbox_subject import MakeProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from tests.conformance.sandbox_defects import DEFECTS, opened


@pytest.mark.parametrize("check", DEFECTS.values())
def test_a_sandbox_without_the_defect_passes(check: str, tmp_path: Path) -> None:
    getattr(sandbox_suite(opened)(), f"test_{check}")(tmp_path)


@pytest.mark.parametrize(("make", "check"), DEFECTS.items(), ids=DEFECTS.values())
def test_a_planted_defect_is_caught(make: MakeProvider, check: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception)):
        getattr(sandbox_suite(make)(), f"test_{check}")(tmp_path)


def test_a_deviation_names_a_check_of_the_suite() -> None:
    with pytest.raises(ValueError, match="not checks of the suite: nonsense"):
        sandbox_suite(opened, {"nonsense": "a reason"})


def test_deviations_are_few() -> None:
    names = list(DEFECTS.values())[:4]
    with pytest.raises(ValueError, match="4 deviations; a sandbox may have 3"):
        sandbox_suite(opened, dict.fromkeys(names, "a reason"))


def without_pytest(code: str) -> subprocess.CompletedProcess[str]:
    """What `code` does in a Python that has no pytest."""
    absent = "import sys; sys.modules['pytest'] = None\n"
    return subprocess.run([sys.executable, "-c", absent + code], capture_output=True, text=True, check=False)


def test_without_pytest_the_suite_says_what_to_install() -> None:
    done = without_pytest("import evalfleet.testing.sandbox_suite")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: the sandbox suite needs pytest: pip install 'evalfleet[testing]'"


def test_without_pytest_the_adapter_suite_is_still_there() -> None:
    done = without_pytest("from evalfleet.testing import Probes, adapter_suite; import evalfleet.testing.fakes")
    assert (done.returncode, done.stderr) == (0, "")
