"""A command line goes to a process that waits for one, with all it would have had here, or to nobody."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalfleet.cli.front import may_be_handed_over
from evalfleet.errors import ConfigurationError, InfrastructureError
from evalfleet.handover import CommandLine, hand_over
from evalfleet.socket_places import is_ours, make_ours, socket_folder

#: Takes one command line whose first word is not `no`, says what it got, and does what the second word says.
_TAKER = """
import json, os, signal, sys, time
from pathlib import Path
from evalfleet.handover import listening, take
with listening(Path(sys.argv[1])) as listener:
    taken = take(listener, lambda asked: "not mine" if asked.arguments[0] == "no" else None)
taken.begin()
what = taken.line.arguments[1]
if what == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "wait":
    signal.signal(signal.SIGINT, lambda *_: (print("interrupted"), sys.stdout.flush(), taken.finish(130), os._exit(0)))
    print(os.getpid()); sys.stdout.flush()
    time.sleep(60)
umask = os.umask(0)
print(json.dumps([os.getcwd(), os.environ.get("COLOUR"), "PATH" in os.environ, umask, sys.stdin.read()]))
print("beside", file=sys.stderr)
sys.stdout.flush()
taken.finish(7)
"""
_GIVER = """
import sys
from pathlib import Path
from evalfleet.errors import InfrastructureError
from evalfleet.handover import CommandLine, hand_over
try:
    sys.exit(hand_over(Path(sys.argv[1]), CommandLine.here(sys.argv[2:])))
except InfrastructureError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder) / "s"


@pytest.fixture
def taker(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _TAKER, str(place)])
    _until(place.exists)
    yield process
    process.kill()
    process.wait()


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def _giver(place: Path, *arguments: str, umask: int = 0o022) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _GIVER, str(place), *arguments],
        cwd=place.parent,
        env={"COLOUR": "green", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=umask,
    )


def test_streams_directory_environment_and_umask_go_along(place: Path, taker: subprocess.Popen[bytes]) -> None:
    giver = _giver(place, "yes", "say", umask=0o027)
    out, err = giver.communicate("typed", timeout=20)
    assert json.loads(out) == [str(place.parent), "green", False, 0o027, "typed"]
    assert (err, giver.returncode, taker.wait(timeout=20)) == ("beside\n", 7, 0)
    assert not place.exists()


def test_what_is_refused_is_left_to_the_giver_and_the_next_one_is_taken(
    place: Path, taker: subprocess.Popen[bytes]
) -> None:
    assert hand_over(place, CommandLine.here(["no", "say"])) is None
    with _giver(place, "yes", "say") as giver:
        giver.communicate("", timeout=20)
    assert giver.returncode == 7


@pytest.mark.parametrize("sent", [b"", b"12345678", b"\0\0\0\0\0\0\0\2{}", b"\0\0\0\0\0\0\0\x09nonsense!"])
def test_who_sends_nothing_of_sense_is_dropped(place: Path, taker: subprocess.Popen[bytes], sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(place))
        stranger.sendall(sent)
    with _giver(place, "yes", "say") as giver:
        giver.communicate("", timeout=20)
    assert giver.returncode == 7


def test_nothing_is_begun_for_a_giver_that_went_before_it_said_go(place: Path, taker: subprocess.Popen[bytes]) -> None:
    data = json.dumps(CommandLine.here(["yes", "die"])._asdict()).encode()
    with socket.socket(socket.AF_UNIX) as giver:
        giver.connect(str(place))
        socket.send_fds(giver, [len(data).to_bytes(8, "big")], (0, 1, 2))
        giver.sendall(data)
        assert b"taken" in giver.recv(1000)
    time.sleep(0.2)
    assert taker.poll() is None and place.exists()


def test_a_taker_that_dies_is_no_exit_code(place: Path, taker: subprocess.Popen[bytes]) -> None:
    with pytest.raises(InfrastructureError, match=f"process {taker.pid}, which carried this out, has ended amid it"):
        hand_over(place, CommandLine.here(["yes", "die"]))


def test_a_killed_giver_takes_the_taker_along(place: Path, taker: subprocess.Popen[bytes]) -> None:
    with _giver(place, "yes", "wait") as giver:
        assert giver.stdout is not None
        assert int(giver.stdout.readline()) == taker.pid
        giver.kill()
        assert taker.wait(timeout=20) == -signal.SIGKILL


def test_signals_reach_the_taker(place: Path, taker: subprocess.Popen[bytes]) -> None:
    with _giver(place, "yes", "wait") as giver:
        assert giver.stdout is not None
        giver.stdout.readline()
        giver.send_signal(signal.SIGTSTP)
        _until(lambda: _state(taker.pid) == "T" and _state(giver.pid) == "T")
        giver.send_signal(signal.SIGCONT)
        _until(lambda: _state(taker.pid) == "S")
        giver.send_signal(signal.SIGINT)
        assert giver.stdout.read() == "interrupted\n"
        assert giver.wait(timeout=20) == 130


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_nobody_is_asked_where_others_could_listen(place: Path, taker: subprocess.Popen[bytes]) -> None:
    place.parent.chmod(0o755)
    assert hand_over(place, CommandLine.here(["yes", "die"])) is None
    with pytest.raises(ConfigurationError, match="belongs to somebody else; remove it, or go away"):
        make_ours(place.parent, "go away")


def test_no_socket_is_nobody(place: Path) -> None:
    assert hand_over(place, CommandLine.here(["yes", "say"])) is None
    place.touch()
    assert hand_over(place, CommandLine.here(["yes", "say"])) is None


def test_a_long_path_has_a_short_one_that_stands_for_it() -> None:
    short, long = Path("/tmp/state/up"), Path("/tmp") / ("x" * 90) / "up"
    assert socket_folder(short, "s.sock") == short
    folder = socket_folder(long, "s.sock")
    assert folder == socket_folder(long, "s.sock") != socket_folder(long.with_name("other") / "up", "s.sock")
    assert len(str(folder / "s.sock")) < 100


def test_a_folder_of_ours_is_made_for_us_alone(tmp_path: Path) -> None:
    make_ours(tmp_path / "a" / "b", "")
    assert is_ours(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("line", "handed"),
    [
        ("submit e.yaml", True),
        ("submit e.yaml --json --set repetitions=2", True),
        ("resume abc", True),
        ("submit e.yaml --inline", False),
        ("submit --address=10.0.0.1:6379 e.yaml", False),
        ("submit e.yaml --address 10.0.0.1:6379", False),
        ("submit --detach e.yaml", False),
        ("submit --help", False),
        ("--debug submit e.yaml", False),
        ("try e.yaml", False),
        ("", False),
    ],
)
def test_what_may_be_handed_over(line: str, handed: bool) -> None:
    assert may_be_handed_over(line.split()) is handed
