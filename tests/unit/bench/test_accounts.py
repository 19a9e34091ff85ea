"""CPU accounts count what a command left behind, not only its own children."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.accounts import Account, CgroupAccount, ReaperAccount, kill_all, open_account

BURN = """
import os, time
def burn():
    while time.process_time() < 0.3: pass
if os.fork() == 0:          # a daemon: its parent is gone before it has done anything
    os.setsid()
    if os.fork() == 0:
        burn()
        {after}
    os._exit(0)
os.wait()
"""


@contextmanager
def opened(kind: str) -> Iterator[Account]:
    account: Account = ReaperAccount() if kind == "reaper" else open_account()
    if kind == "cgroup" and not isinstance(account, CgroupAccount):
        account.close()
        pytest.skip("this machine lets nobody make a cgroup")
    try:
        yield account
    finally:
        kill_all(account)
        account.close()


def run(account: Account, code: str, folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        account.start((sys.executable, "-S", "-c", code), os.environ, folder, log, log)


def until(done: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["cgroup", "reaper"])
def test_a_daemon_that_has_ended_counts(kind: str, tmp_path: Path) -> None:
    with opened(kind) as account:
        run(account, BURN.format(after="os._exit(0)"), tmp_path)
        until(lambda: account.ended() is not None and not account.pids())
        assert account.ended() == 0
        assert not account.pids()
        assert 0.28 <= account.cpu() < 3.0


@pytest.mark.parametrize("kind", ["cgroup", "reaper"])
def test_a_daemon_that_lives_on_counts_and_can_be_killed(kind: str, tmp_path: Path) -> None:
    with opened(kind) as account:
        run(account, BURN.format(after="time.sleep(600)"), tmp_path)
        until(lambda: account.cpu() >= 0.3)
        assert account.ended() == 0
        assert len(account.pids()) == 1
        assert account.cpu() >= 0.3
        kill_all(account)
        assert not account.pids()


@pytest.mark.parametrize("kind", ["cgroup", "reaper"])
def test_the_exit_code_is_the_commands(kind: str, tmp_path: Path) -> None:
    with opened(kind) as account:
        run(account, "raise SystemExit(7)", tmp_path)
        until(lambda: account.ended() is not None)
        assert account.ended() == 7
