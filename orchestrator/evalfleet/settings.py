"""The only reader of the environment."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import ConfigurationError

DATABASE_URL = "EVALFLEET_DATABASE_URL"
HOME = "EVALFLEET_HOME"
ARTIFACTS = "EVALFLEET_ARTIFACTS"
RAY_ADDRESS = "EVALFLEET_RAY_ADDRESS"
FAILPOINT = "EVALFLEET_FAILPOINT"
SANDBOX_BACKEND = "EVALFLEET_SANDBOX_BACKEND"
JUDGE_MODEL = "EVALFLEET_JUDGE_MODEL"
JUDGE_BASE_URL = "EVALFLEET_JUDGE_BASE_URL"
JUDGE_API_KEY_ENV = "EVALFLEET_JUDGE_API_KEY_ENV"
RAY_TOKEN = "RAY_AUTH_TOKEN"
_ENGINES = (
    *("PATH", "HOME", "LANG", "TERM", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_BUILDKIT"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE"),
    *("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
    *("EVALFLEET_CONTAINER_ENGINE", "EVALFLEET_KUBERNETES_NAMESPACE", "EVALFLEET_KUBERNETES_RUNTIME_CLASS"),
    *("EVALFLEET_KUBERNETES_TEMPLATE", "EVALFLEET_RELAY_IMAGE"),
)
_RAY_AUTHENTICATION = ("RAY_AUTH_MODE", RAY_TOKEN, "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says about this machine.

    `database_url` is None for the embedded server; `artifacts` an fsspec URL or a path; `failpoint` the name of
    a place where a test wants this process killed (`after_copy`, or `after_copy:3` for the third time). `judge_*`
    are for evals and experiments that don't say which judge, `sandbox_backend` for sandboxes that name none.
    """

    state_dir: Path
    artifacts: str
    database_url: str | None = None
    ray_address: str | None = None
    failpoint: str | None = None
    judge_model: str | None = None
    judge_base_url: str | None = None
    judge_api_key_env: str | None = None
    sandbox_backend: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of this process, or of a given environment. Empty values count as unset.

        Raises ConfigurationError when no state directory can be derived.
        """
        known = {name: value for name, value in (os.environ if environment is None else environment).items() if value}
        state = _state_dir(known)
        return cls(
            state_dir=state,
            artifacts=known.get(ARTIFACTS, str(state / "artifacts")),
            database_url=known.get(DATABASE_URL),
            ray_address=known.get(RAY_ADDRESS, known.get("RAY_ADDRESS")),
            failpoint=known.get(FAILPOINT),
            judge_model=known.get(JUDGE_MODEL),
            judge_base_url=known.get(JUDGE_BASE_URL),
            judge_api_key_env=known.get(JUDGE_API_KEY_ENV),
            sandbox_backend=known.get(SANDBOX_BACKEND),
        )


class EnvironmentSecrets:
    """Secrets that are environment variables of this process."""

    def resolve(self, name: str) -> str:
        """The value of the variable. Raises ConfigurationError naming it when it is not set or empty."""
        value = os.environ.get(name)
        if not value:
            raise ConfigurationError(f"the environment variable {name} is not set")
        return value


def environment_for(database_url: str) -> dict[str, str]:
    """The environment of a child process of ours that is to work on this database."""
    return {**os.environ, DATABASE_URL: database_url}


def ray_authentication() -> dict[str, str]:
    """How this process authenticates where Ray asks for it, in Ray's own variables; empty when none of them is set."""
    return {name: os.environ[name] for name in _RAY_AUTHENTICATION if name in os.environ}


def use_ray_authentication(how: Mapping[str, str]) -> None:
    """Authenticate like this from now on. Ray reads the mode when it is imported, a token when it starts or joins."""
    for name in _RAY_AUTHENTICATION:
        os.environ.pop(name, None)
    os.environ.update(how)


def _state_dir(known: Mapping[str, str]) -> Path:
    if HOME in known:
        return Path(known[HOME]).expanduser().absolute()
    if "XDG_STATE_HOME" in known:
        return Path(known["XDG_STATE_HOME"]).absolute() / "evalfleet"
    try:
        home = known.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise ConfigurationError(f"this user has no home directory: set {HOME} to a writable one") from error
    return Path(home) / ".local" / "state" / "evalfleet"


def engine_environment() -> dict[str, str]:
    """What the clients of container engines and clusters read of the environment."""
    return {name: os.environ[name] for name in _ENGINES if name in os.environ}


def ray_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Ray's own variables in an environment, but for how to authenticate, which a Ray that is up says itself."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("RAY_") and name not in _RAY_AUTHENTICATION
    }


def use_environment(environment: Mapping[str, str]) -> None:
    """Have this environment from now on, and nothing of the one before."""
    os.environ.clear()
    os.environ.update(environment)


def own_environment() -> dict[str, str]:
    """This process's environment, for children that are to see the same."""
    return dict(os.environ)
