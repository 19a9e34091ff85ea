"""How a Ray that is kept up is found: by a lock that only its living process holds, and by the same environment."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.api.running import Place, joinable
from evalfleet.api.warm import WarmRay, keeping, publish, take_down, using, warm_ray
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError
from evalfleet.settings import Settings, ray_authentication
from evalfleet.testing.fakes import FixedRandom


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, artifacts=str(tmp_path / "artifacts"))


@pytest.fixture
def ray() -> WarmRay:
    return WarmRay.here("127.0.0.1:6379", 2, FixedRandom([5]))


def test_it_is_found_while_its_process_keeps_it_and_not_after(settings: Settings, ray: WarmRay) -> None:
    assert warm_ray(settings) is None
    with keeping(settings) as place:
        assert warm_ray(settings) is None, "it is not up yet"
        publish(place, ray)
        assert warm_ray(settings) == ray
    assert warm_ray(settings) is None


def test_there_is_one_place(settings: Settings) -> None:
    with keeping(settings), pytest.raises(ConfigurationError, match="orchestrate down"), keeping(settings):
        pass


def test_what_a_killed_process_left_behind_is_no_ray(settings: Settings) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from evalfleet.api.warm import WarmRay, keeping, publish\n"
        "from evalfleet.settings import Settings\n"
        "from evalfleet.testing.fakes import FixedRandom\n"
        "with keeping(Settings(state_dir=Path(sys.argv[1]), artifacts='a')) as place:\n"
        "    publish(place, WarmRay.here('127.0.0.1:1', 1, FixedRandom([1])))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(settings.state_dir)], check=False)
    assert done.returncode == -9
    assert (settings.state_dir / "ray.json").read_bytes().startswith(b"{")
    assert warm_ray(settings) is None


def test_the_same_environment_is_no_difference(ray: WarmRay) -> None:
    assert ray.differences() == ()


@pytest.mark.parametrize(
    ("name", "differs"),
    [("OPENAI_API_KEY", True), ("TERM", False), ("SSH_TTY", False), ("EVALFLEET_HOME", False), ("RAY_X", False)],
)
def test_a_variable_that_an_agent_may_read_is_one(
    ray: WarmRay, name: str, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "sk-other")
    assert ray.differences() == ((name,) if differs else ())
    assert WarmRay.here("a", 1, FixedRandom([5])).differences() == ()


def test_a_variable_that_only_the_ray_has_is_none(ray: WarmRay) -> None:
    assert replace(ray, environment={**ray.environment, "MORE": "0"}).differences() == ()


def test_another_python_is_one(ray: WarmRay) -> None:
    assert replace(ray, python="/elsewhere").differences() == ("python",)


def test_no_value_stands_in_the_file(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "sk-hunter2")
    with keeping(settings) as place:
        publish(place, WarmRay.here("a", 1, FixedRandom([7])))
        kept = (settings.state_dir / "ray.json").read_text()
        assert "A_SECRET" in kept and "hunter2" not in kept
        assert (settings.state_dir / "ray.json").stat().st_mode & 0o777 == 0o600


def test_who_joins_it_authenticates_as_it_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "its")
    with keeping(settings) as place:
        publish(place, WarmRay.here("a", 1, FixedRandom([7])))
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "mine")
        joining = joinable(Place(), settings)
    assert joining is not None
    assert ray_authentication() == joining.authentication == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "its"}


async def test_a_ray_in_use_is_not_taken_down(settings: Settings, ray: WarmRay) -> None:
    assert await take_down(settings, SystemClock()) is None
    with keeping(settings) as place:
        publish(place, replace(ray, pid=os.getpid()))
        with using(settings), pytest.raises(ConfigurationError, match="runs are going on it"):
            await take_down(settings, SystemClock())
