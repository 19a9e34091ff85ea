"""The package's names stay what they are whichever of them is used first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evalfleet import api


@pytest.mark.parametrize("first", api.__all__)
def test_using_one_name_changes_no_other(first: str) -> None:
    script = (
        "import sys, types\n"
        "from evalfleet import api\n"
        "getattr(api, sys.argv[1])\n"
        "assert not [name for name in api.__all__ if isinstance(getattr(api, name), types.ModuleType)]\n"
    )
    done = subprocess.run([sys.executable, "-c", script, first], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
