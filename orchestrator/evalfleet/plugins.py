"""What is installed: entry points to factories, imported by name when asked for, and package versions.

Groups: `evalfleet.adapters` (an `AdapterFactory` each), `evalfleet.sandboxes` (a `SandboxFactory` each) and
`evalfleet.evaluators` (a function each).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from evalfleet.errors import ConfigurationError, InfrastructureError, describe
from evalfleet.model.model_route import ModelUpstream
from evalfleet.ports import AdapterFactory, Clock, JudgeModel, ModelDesk, Random
from evalfleet.sandbox_ports import App, Gateway, SandboxFactory

if TYPE_CHECKING:
    from evalfleet.store.judge_cache import PostgresJudgeCache
    from evalfleet.store.recordings import Recordings
    from evalfleet.store.sandboxes import SandboxRows

ADAPTERS = "evalfleet.adapters"
SANDBOXES = "evalfleet.sandboxes"
EVALUATORS = "evalfleet.evaluators"

F = TypeVar("F")


class UnknownPlugin(ConfigurationError, KeyError):
    """No installed package provides the adapter or sandbox backend."""

    def __str__(self) -> str:
        return str(self.args[0])


class Factories(Mapping[str, F], Generic[F]):
    """Installed factories by name. Listing names imports nothing; looking one up imports it, once.

    Looking up raises UnknownPlugin naming the nearest name, or ConfigurationError naming the entry point that
    is broken: it can't be imported, it is not a factory, or two packages claim its name.
    """

    def __init__(self, what: str, kind: type[Any], points: Iterable[EntryPoint]) -> None:
        self._what = what
        self._kind = kind
        self._loaded: dict[str, F] = {}
        self._points: dict[str, list[EntryPoint]] = {}
        for point in points:
            self._points.setdefault(point.name, []).append(point)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._points))

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def __getitem__(self, name: str) -> F:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> F:
        points = self._points.get(name)
        if points is None:
            raise UnknownPlugin(f"unknown {self._what} {name!r}{self._hint(name)}")
        owners = sorted({_owner(point) for point in points})
        if len({point.value for point in points}) > 1:
            raise ConfigurationError(f"the {self._what} {name!r} is provided twice, by {' and '.join(owners)}")
        point = points[0]
        where = f"the {self._what} {name!r} ({point.value}, from {owners[0]})"
        try:
            factory: object = point.load()
        except Exception as error:
            raise ConfigurationError(f"{where} can't be imported: {type(error).__name__}: {describe(error)}") from error
        if not isinstance(factory, self._kind):
            raise ConfigurationError(f"{where} is not a {self._kind.__name__} but a {type(factory).__name__}")
        return cast(F, factory)

    def _hint(self, name: str) -> str:
        close = get_close_matches(name, list(self), n=1, cutoff=0.6)
        if close:
            return f": did you mean {close[0]!r}?"
        return f": installed are {', '.join(self)}" if self._points else ": none is installed"


def adapter_factories() -> Factories[AdapterFactory]:
    """The installed adapters by name, each imported when it is looked up."""
    return Factories[AdapterFactory]("adapter", AdapterFactory, entry_points(group=ADAPTERS))


def sandbox_factories() -> Factories[SandboxFactory]:
    """The installed sandbox backends by name, each imported when it is looked up."""
    return Factories[SandboxFactory]("sandbox backend", SandboxFactory, entry_points(group=SANDBOXES))


@lru_cache(maxsize=1)  # looking through all that is installed takes milliseconds, and is asked for a scenario
def evaluator_functions() -> Factories[Callable[..., Any]]:
    """The installed evaluators of suites by name, each imported when it is looked up."""
    return Factories[Callable[..., Any]]("evaluator", cast("type[Any]", Callable), entry_points(group=EVALUATORS))


def installed_packages() -> dict[str, str]:
    """The version of every installed distribution by name, sorted."""
    return dict(sorted({found.name: found.version for found in distributions()}.items()))


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unnamed package"


def ray_engine() -> ModuleType:
    """`evalfleet.api.ray_engine`, which imports Ray: only who runs on Ray pays for that.

    Raises InfrastructureError when Ray can't be imported here.
    """
    try:
        return importlib.import_module("evalfleet.api.ray_engine")
    except ImportError as error:
        raise InfrastructureError(f"Ray can't be imported here: {error}") from error


def schema_match() -> ModuleType:
    """`evalfleet.assertions.schema_match`, whose libraries only who asks for structured data pays for."""
    return importlib.import_module("evalfleet.assertions.schema_match")


def judge_model(clock: Clock, random: Random) -> JudgeModel:
    """A judge's model over HTTP, whose library only who judges pays for."""
    module = importlib.import_module("evalfleet.grading.judge_client")
    return cast(JudgeModel, module.HttpJudge(clock, random))


def mcp_server() -> ModuleType:
    """`evalfleet.taskpacks.mcp_server`, whose library only attempts that serve tools by it pay for.

    Raises ImportError, which says what to install, without `evalfleet[mcp]`.
    """
    return importlib.import_module("evalfleet.taskpacks.mcp_server")


def gateway_room(random: Random) -> Gateway:
    """The gateway of this process, whose server only attempts that reach something pay for."""
    module = importlib.import_module("evalfleet.gateway.listener")
    return cast(Gateway, module.GatewayRoom(random))


def span_intake() -> Any:
    """The module that takes agents' spans: only runs that ask for them pay for it."""
    return importlib.import_module("evalfleet.api.span_intake")


def own_telemetry() -> Any:
    """The module that exports evalfleet's own spans and metrics. Raises ConfigurationError when it is not installed."""
    try:
        return importlib.import_module("evalfleet.telemetry.exporting")
    except ModuleNotFoundError as error:
        what = "telemetry.export: needs what `pip install 'evalfleet[telemetry]'` installs"
        raise ConfigurationError(f"{what}: {error}") from error


def waterfalls() -> Any:
    """The module that decodes stored spans: only who looks at spans pays for it."""
    return importlib.import_module("evalfleet.api.waterfalls")


def model_route() -> Callable[[ModelUpstream, ModelDesk], App]:
    """What makes the route of an attempt's model: only attempts that ask one pay for it."""
    return importlib.import_module("evalfleet.gateway.model_route").ModelRoute


def judge_stores() -> tuple[type[PostgresJudgeCache], type[Recordings]]:
    """Where judges find earlier replies, and where attempts wait for them: only who judges talks to Postgres itself."""
    cache = importlib.import_module("evalfleet.store.judge_cache")
    recordings = importlib.import_module("evalfleet.store.recordings")
    return cache.PostgresJudgeCache, recordings.Recordings


def sandbox_rows() -> type[SandboxRows]:
    """Where sandboxes that may stay are written down: only who makes such ones talks to Postgres itself."""
    return importlib.import_module("evalfleet.store.sandboxes").SandboxRows


def ray_jobs(address: str) -> object:
    """The `RayJobs` of the cluster whose dashboard is at `address`.

    Raises InfrastructureError when Ray is not installed with what it needs for that, or the cluster is not there.
    """
    try:
        module = importlib.import_module("evalfleet.scheduling.ray_jobs")
    except ImportError as error:
        raise InfrastructureError(f"jobs need `pip install 'evalfleet[cluster]'`: {error}") from error
    return module.RayJobs(address)
