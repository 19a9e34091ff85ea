"""The report document as strict models, in the names of its file: what is published, and what is read back. PURE."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from evalfleet.suites.schema import JsonObject, Said, Strict, Suite1, Suite2, without_null_defaults

Text = Annotated[str | SkipJsonSchema[None], Said]
Number = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


def _instant(text: str) -> str:
    datetime.fromisoformat(text)
    return text


#: A moment as ISO 8601 with its offset from UTC.
Instant = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"), AfterValidator(_instant)
]
MaybeInstant = Annotated[Instant | SkipJsonSchema[None], Said]

CaseState = Literal["passed", "failed", "error", "pending", "running", "cancelled", "skipped", "blocked"]
CASE_STATES: tuple[CaseState, ...] = (
    "passed", "failed", "error", "pending", "running", "cancelled", "skipped", "blocked",
)  # fmt: skip


class Actual(Strict):
    """What stood where a criterion looked: `present` tells null from nothing."""

    present: bool
    value: Any = None


class Criterion(Strict):
    """The result of one criterion. `passed` is false for a failure and for an error; `errorCode` tells them apart."""

    id: str
    kind: Text = None
    label: Text = None
    severity: Annotated[Literal["advisory"] | SkipJsonSchema[None], Said] = None
    passed: bool
    path: Annotated[list[str | int] | SkipJsonSchema[None], Said] = None
    operator: Text = None
    actual: Annotated[Actual | SkipJsonSchema[None], Said] = None
    expected: Any = None
    error_code: Text = None
    reason: Text = None
    evidence: Annotated[JsonObject | SkipJsonSchema[None], Said] = None
    children: list[Criterion] = Field(default_factory=list["Criterion"])

    @property
    def decides(self) -> bool:
        return self.severity is None


class Turn(Strict):
    """What was sent and what came back. `durationMs` includes its assertions, in milliseconds."""

    step_id: str
    turn_id: str
    input: JsonObject
    status: Literal["passed", "failed", "error", "cancelled"]
    observation: Annotated[JsonObject | SkipJsonSchema[None], Said] = None
    assertions: list[Criterion]
    error_code: Text = None
    duration_ms: Number
    checkpoint: Annotated[JsonObject | SkipJsonSchema[None], Said] = None


class Cleanup(Strict):
    """That closing a case's session or sandbox failed."""

    status: Literal["failed"]
    code: str


class Case(Strict):
    """One case. `errorPointer` says where in it the error stands that `errorCode` is lifted from."""

    id: str
    scenario_id: str
    name: str
    thread_id: str
    repetition: Count
    variants: dict[str, str]
    status: CaseState
    turns: list[Turn]
    assertions: list[Criterion]
    error_code: Text = None
    error_pointer: Text = None
    skip_reason: Text = None
    attempt: Annotated[Annotated[int, Field(ge=1)] | SkipJsonSchema[None], Said] = None
    worker: Text = None
    started_at: MaybeInstant = None
    finished_at: MaybeInstant = None
    cleanup: Annotated[Cleanup | SkipJsonSchema[None], Said] = None
    outcome_before_cleanup: Annotated[CaseState | SkipJsonSchema[None], Said] = None


class Summary(Strict):
    """How many cases there are, and of each status."""

    total: Count
    passed: Count
    failed: Count
    error: Count
    pending: Count
    running: Count
    cancelled: Count
    skipped: Count
    blocked: Count


class Target(Strict):
    id: str
    fingerprint: str


class RegisteredCriterion(Strict):
    """An assertion that an eval's body registered; its results say what it looked for."""

    id: str
    kind: str
    label: Text = None


class GeneratedScenario(Strict):
    """An eval. `source` is the digest of its source closure."""

    id: str
    name: str
    description: Text = None
    source: Text = None
    assertions: list[RegisteredCriterion]


class GeneratedSuite(Strict):
    """What stands in the place of a suite when cases are not exactly those of one that was declared."""

    schema_version: Literal[1]
    generated: Literal[True]
    id: str
    name: str
    scenarios: list[GeneratedScenario]


def _form(suite: Any) -> str:
    if isinstance(suite, dict):
        known = cast("dict[str, Any]", suite)
        return "generated" if known.get("generated") is True else str(known.get("schemaVersion"))
    return "generated" if isinstance(suite, GeneratedSuite) else str(getattr(suite, "schema_version", ""))


AnySuite = Annotated[
    Annotated[Suite1, Tag("1")] | Annotated[Suite2, Tag("2")] | Annotated[GeneratedSuite, Tag("generated")],
    Discriminator(
        _form,
        custom_error_type="suite",
        custom_error_message="must be a suite of version 1 or 2, or a generated one",
    ),
]


class Report(Strict):
    """The report of one arm of a run."""

    schema_version: Literal[1]
    run_id: str
    resumed_from: Text = None
    target: Target
    started_at: Instant
    finished_at: MaybeInstant = None
    status: Literal["running", "completed", "cancelled", "limited"]
    stop_reason: Text = None
    grading: Annotated[Annotated[int, Field(ge=1)] | SkipJsonSchema[None], Said] = None
    cases: list[Case]
    summary: Summary
    assertions: list[Criterion] = Field(default_factory=list[Criterion])
    suite: AnySuite
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def report_schema() -> dict[str, Any]:
    """The JSON Schema of a report document, as published in `docs/report.schema.json`."""
    schema = without_null_defaults(Report.model_json_schema(mode="validation"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "evalfleet report"}
