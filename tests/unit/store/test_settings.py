"""What the environment says, and what it means when it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.settings import EnvironmentSecrets, Settings


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({"EVALFLEET_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/evalfleet"),
        ({"HOME": "/c"}, "/c/.local/state/evalfleet"),
        ({"EVALFLEET_HOME": "", "XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/evalfleet"),
    ],
)
def test_the_state_directory(environment: dict[str, str], state: str) -> None:
    settings = Settings.from_environment(environment)
    assert settings.state_dir == Path(state)
    assert settings.artifacts == f"{state}/artifacts"
    assert settings.database_url is settings.ray_address is settings.failpoint is None


def test_without_a_home_in_the_environment_the_user_database_has_one() -> None:
    assert Settings.from_environment({}).state_dir.is_absolute()
    assert Settings.from_environment({"HOME": ""}) == Settings.from_environment({})


def test_everything_that_can_be_set() -> None:
    settings = Settings.from_environment(
        {
            "HOME": "/c",
            "EVALFLEET_DATABASE_URL": "postgresql://db/x",
            "EVALFLEET_ARTIFACTS": "s3://bucket/x",
            "EVALFLEET_RAY_ADDRESS": "ray://head:1",
            "EVALFLEET_FAILPOINT": "after_copy:3",
        }
    )
    assert (settings.database_url, settings.artifacts) == ("postgresql://db/x", "s3://bucket/x")
    assert (settings.ray_address, settings.failpoint) == ("ray://head:1", "after_copy:3")


def test_a_secret_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "value")
    assert EnvironmentSecrets().resolve("SOME_KEY") == "value"
    for value in (None, ""):
        monkeypatch.delenv("SOME_KEY", raising=False)
        if value is not None:
            monkeypatch.setenv("SOME_KEY", value)
        with pytest.raises(ConfigurationError, match="SOME_KEY is not set"):
            EnvironmentSecrets().resolve("SOME_KEY")
