"""The Experiment: which Evals, against which Arms, how often, under which limits. Strict and frozen.

A value is made from JSON only (`Experiment.from_json`): the YAML reader turns its scalars into JSON first, so
that a snapshot written into the record store reads back equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from evalfleet.errors import RETRYABLE_KINDS, FailureKind
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.model.destination import check_network
from evalfleet.model.judge import MOST_VOTES, Reducer
from evalfleet.model.quantity import Duration, Size

#: What an experiment may say under `reporters`.
ReporterName: TypeAlias = Literal["text", "json", "markdown", "junit"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=-]*")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value) or len(value) > 100:
        raise ValueError("must be at most 100 letters, digits and . _ + @ = - and start with a letter or digit")
    return value


def _retryable(value: FailureKind) -> FailureKind:
    if value not in RETRYABLE_KINDS:
        allowed = ", ".join(sorted(RETRYABLE_KINDS))
        raise ValueError(f"can't be retried by an experiment: choose from {allowed}")
    return value


def _finding(value: str) -> str:
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if pattern.search("") is not None:
        raise ValueError("finds something in every text, also in an empty one")
    return value


Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]


class Strict(BaseModel):
    """Unknown keys are errors, nothing is converted silently, values don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Selection(Strict):
    """Which Evals: plain prefixes of ids, any of the tags, minus the excluded prefixes, at most `limit` of them.

    Of suites `scenario_ids` keeps the scenarios named, and `variants` of a step, by its id, the variants named; what
    has any of `exclude_tags` goes. The planned order is a permutation by `seed`; `limit` takes its first entries, so a
    larger limit keeps them.
    """

    select: tuple[Text, ...] = ()
    tags: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()
    exclude_tags: tuple[Text, ...] = ()
    scenario_ids: tuple[Text, ...] | None = None
    variants: Mapping[Text, tuple[Text, ...]] = {}
    limit: Count | None = None
    seed: int = 0


class SandboxResources(Strict):
    """Limits of one sandbox: cpus in cores, memory and disk in bytes, pids a count."""

    cpus: Annotated[float, Field(gt=0)] | None = None
    memory: Size | None = None
    pids: Count | None = None
    disk: Size | None = None


class SandboxLayer(Strict):
    """What the experiment says about sandboxes. `files` and `build` are relative to the experiment's folder."""

    backend: Text | None = None
    image: Text | None = None
    build: Text | None = None
    files: Text | None = None
    setup: tuple[Text, ...] = ()
    env: Mapping[str, str] = {}
    env_from: tuple[Text, ...] = ()
    network: Annotated[Text | tuple[Text, ...], AfterValidator(check_network)] | None = None
    resources: SandboxResources | None = None
    user: Text | None = None

    def over(self, lower: SandboxLayer | None) -> SandboxLayer:
        """This layer with what it leaves unsaid taken from `lower`."""
        if lower is None:
            return self
        said = lower.model_dump(exclude_defaults=True) | self.model_dump(exclude_defaults=True)
        return SandboxLayer.model_validate_json(json.dumps(said))

    def spec(self) -> SandboxSpec:
        """The layer as the sandbox plan that adapters and providers know."""
        resources = self.resources or SandboxResources()
        return SandboxSpec(
            backend=self.backend,
            image=self.image,
            build=self.build,
            files=self.files,
            setup=self.setup,
            env=dict(self.env),
            env_from=self.env_from,
            network=self.network or "none",
            resources=Resources(**resources.model_dump()),
            user=self.user,
        )


class JudgeLayer(Strict):
    """What an experiment, or one of its evals, says about the judge. Times in seconds.

    `api_key_env` names the secret with its key. `votes` are independent answers to each question, made one score by
    `reducer`. `timeout` is for all tries of a call together. `allow_self` lets it judge an arm of its own model.
    `cache: false` asks again what was answered before. `calibration` is a file that `orchestrate judge calibrate`
    wrote, relative to the experiment's folder.
    """

    model: Text | None = None
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    api_key_env: Text | None = None
    votes: Annotated[int, Field(ge=1, le=MOST_VOTES)] | None = None
    reducer: Reducer | None = None
    timeout: Duration | None = None
    temperature: Amount | None = None
    max_tokens: Count | None = None
    allow_self: bool | None = None
    cache: bool | None = None
    calibration: Text | None = None


class Target(Strict):
    """What a remote agent is. `fingerprint` is a text, or a command `$(…)` whose output identifies the agent."""

    id: Text | None = None
    fingerprint: Text | None = None


class Arm(Strict):
    """One agent configuration. Keys beside these are the adapter's own options, checked by its factory."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]  # pyright: ignore[reportIncompatibleVariableOverride] - types the extras

    adapter: Text
    model: Text | None = None
    flags: Mapping[str, JsonValue] = {}
    sandbox: SandboxLayer | None = None
    target: Target = Target()
    labels: Mapping[str, str | int | float] = {}
    description: Text | None = None

    @property
    def options(self) -> Mapping[str, JsonValue]:
        """The adapter's own options as written."""
        return self.__pydantic_extra__


class Limits(Strict):
    """How much at a time and how long. Times in seconds; `max_failures` errored cases end granting.

    `sandboxes` bounds the attempts under way that have one. `outage` is how long a run may wait for arms that are
    paused, since what is around them fails. `grading_timeout` is what an attempt may take after its test body to be
    judged, when a judge is asked.
    """

    concurrency: Count = 16
    per_arm: Mapping[str, Count] = {}
    sandboxes: Count | None = None
    sandbox_starts_per_second: Annotated[float, Field(gt=0)] | None = None
    attempt_timeout: Duration = 1200.0
    turn_timeout: Duration | None = None
    grading_timeout: Duration = 600.0
    max_failures: Count | None = None
    outage: Duration = 1800.0


class ArmBudget(Strict):
    """What the attempts of one arm may spend."""

    usd: Amount | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None


class Budget(Strict):
    """What a run, and each of its arms, may spend in US dollars and in tokens; judges are paid from it, too.

    `stop: hard` never spends more; `soft` starts nothing more once it is spent. `attempt_usd` and `attempt_tokens` are
    kept for each attempt of an agent whose model calls can't be seen. `wall` is how old a run may get, in seconds,
    before nothing more of it is started. A run that may cost more than `confirm_usd` begins only when somebody said so.
    """

    usd: Amount | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    wall: Duration | None = None
    stop: Literal["hard", "soft"] = "hard"
    attempt_usd: Amount | None = None
    attempt_tokens: Annotated[int, Field(ge=0)] | None = None
    confirm_usd: Amount | None = None
    arms: Mapping[Name, ArmBudget] = {}

    @property
    def limits_spending(self) -> bool:
        return any(one.usd is not None or one.tokens is not None for one in (self, *self.arms.values()))

    @property
    def is_hard(self) -> bool:
        return self.stop == "hard" and self.limits_spending

    def limits(self, arm: str) -> tuple[bool, bool]:
        """Whether the arm's dollars are limited, and whether its tokens are."""
        own = self.arms.get(arm, ArmBudget())
        return (
            self.usd is not None or own.usd is not None,
            self.tokens is not None or own.tokens is not None,
        )


class StopRules(Strict):
    """What ends a part of a run before all of it is done. With `early_exit` an eval that an arm has passed in one
    repetition is not tried in those that have not begun.
    """

    early_exit: bool = False


class Rate(Strict):
    """What an account allows: requests and tokens a minute, and calls at once. All runs of a cluster share it."""

    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    concurrency: Count | None = None


class Retry(Strict):
    """How often a Case may be attempted, and after which kinds of failure it is attempted again."""

    max_attempts: Count = 3
    on: tuple[Annotated[FailureKind, AfterValidator(_retryable)], ...] = (
        FailureKind.SANDBOX,
        FailureKind.PROVIDER,
        FailureKind.WORKER,
        FailureKind.INFRASTRUCTURE,
    )


class Writes(Strict):
    """Whether Evals that write to the outside world may run."""

    allow_external: bool = False


class PassRate(Strict):
    min: Share


class MeanScore(Strict):
    """In points, over the arm's complete scores."""

    min: float


class Accept(Strict):
    """When the command exits 0. Without a threshold every Case of the arms has to pass; a skip needs `allow_skips`."""

    pass_rate: PassRate | None = None
    mean_score: MeanScore | None = None
    arms: tuple[Name, ...] | None = None
    allow_skips: bool = False


class Price(Strict):
    """What a model costs, in US dollars per million tokens. A cached token without a price costs as an input token."""

    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None


class Redact(Strict):
    """What is not kept of an attempt, beside the values of secrets that are named elsewhere.

    `env` names environment variables of the workers, whose values are secrets, too; what `patterns` find, regular
    expressions as Python's `re` reads them, is replaced in each text.
    """

    env: tuple[Text, ...] = ()
    patterns: tuple[Annotated[str, AfterValidator(_finding)], ...] = ()


class Telemetry(Strict):
    """Whether agents may send spans, and where to; and where evalfleet sends its own.

    Each attempt has an address of its own. `port` is one of this machine beside that, for agents that know no attempt's
    address: whose a span is its trace id says. What comes within `grace` seconds after an attempt is kept.

    `export` is the base of a collector's OTLP over HTTP; `export_headers_env` names the secret with its headers, as
    `name=value` by commas.
    """

    receive: bool = False
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    grace: Duration = 2.0
    export: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    export_headers_env: Text | None = None

    @model_validator(mode="after")
    def _a_port_receives(self) -> Telemetry:
        if self.export_headers_env is not None and self.export is None:
            raise ValueError("export_headers_env is for what is exported: name the collector by `export`, too")
        if self.port is not None and not self.receive:
            raise ValueError("port is where spans are received: say `receive: true`, too")
        return self


class Experiment(Strict):
    """A checked-in `experiment.yaml`, validated."""

    schema_version: Literal[1]
    name: Name
    description: Text | None = None
    evals: Selection = Selection()
    repetitions: Count = 1
    reuse: Literal["none", "settled"] = "none"
    arms: Annotated[Mapping[Name, Arm], Field(min_length=1)]
    matrix: Mapping[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] = {}
    sandbox: SandboxLayer | None = None
    judge: JudgeLayer | None = None
    limits: Limits = Limits()
    budget: Budget = Budget()
    stop: StopRules = StopRules()
    rate: Mapping[Text, Rate] = {}
    prices: Mapping[Text, Price] = {}
    redact: Redact = Redact()
    telemetry: Telemetry = Telemetry()
    retry: Retry = Retry()
    writes: Writes = Writes()
    accept: Accept = Accept()
    reporters: tuple[ReporterName, ...] = ()
    isolation: Literal["worker", "process"] = "worker"

    def snapshot(self) -> dict[str, Any]:
        """The experiment as JSON, defaults included; `from_snapshot` gives an equal experiment."""
        return self.model_dump(mode="json")

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Experiment:
        """The experiment that `snapshot` was taken of. Raises pydantic's ValidationError."""
        return cls.model_validate_json(json.dumps(snapshot))


def experiment_schema() -> dict[str, Any]:
    """The JSON Schema of `experiment.yaml`, as published in `docs/experiment.schema.json`."""
    schema = Experiment.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "evalfleet experiment"
    return schema
