"""How the whole test tree runs: one process for all that need Ray, and where the seconds went."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.postgres",)

# a shared machine may take its time; what a property says does not depend on it
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

#: Directories whose tests share no fixture that is dear to start: xdist may spread them one by one.
FREE = ("tests/unit/", "tests/simulation/", "tests/conformance/", "tests/integration/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep every test that needs Ray, and elsewhere a file's tests, in one xdist worker: their fixtures start once.

    Those that need Ray come first: they take longest, one after the other, while the others fill what they leave.
    """
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))
        elif not item.nodeid.startswith(FREE) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds and tests of each directory, the dearest first; set-up and tear-down included."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                directory = report.nodeid.split("::")[0].rpartition("/")[0]
                seconds[directory] += report.duration
                tests[directory] += report.when == "call"
    terminalreporter.section("seconds per directory")
    for directory in sorted(seconds, key=lambda name: -seconds[name]):
        terminalreporter.write_line(f"{seconds[directory]:8.1f} s  {tests[directory]:5d} tests  {directory}")
