"""A declarative suite: ordered conversations with their acceptance criteria, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NoReturn

from evalfleet.model.events import MISSING

#: Where a check looks, from the root of the observation: a name of an object's own key, or a list's index.
SuitePath = tuple[str | int, ...]


class Severity(StrEnum):
    """Whether a criterion decides; an advisory one is reported and counted apart, and decides nothing."""

    REQUIRED = "required"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteAssertion:
    """One criterion. `id` is unique among its siblings; an address is the scope and the ids on the way to it."""

    id: str
    label: str | None = None
    severity: Severity = Severity.REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAssertion(SuiteAssertion):
    """What an operator says of the value at `path`. `value` is JSON, MISSING where the operator takes none.

    `tolerance` belongs to `approx`: the largest difference that is still equal.
    """

    path: SuitePath
    operator: str
    value: Any = MISSING
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeAssertion(SuiteAssertion):
    """All, or any, of its children, each of which is evaluated."""

    kind: Literal["all", "any"]
    assertions: tuple[SuiteAssertion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NegatedAssertion(SuiteAssertion):
    """That its child fails; a child that can't be judged is not one that fails."""

    assertion: SuiteAssertion


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAssertion(SuiteAssertion):
    """What a registered evaluator says. `parameters` is a JSON object."""

    evaluator: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAssertion(SuiteAssertion):
    """What the experiment's judge says of the texts at two paths (version 2).

    `recipe` is one of the judge's; `criterion` is what is asked. The score must reach `minimum`, in [0, 1].
    """

    recipe: str
    criterion: str
    path: SuitePath
    minimum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A complete input that stands in a step's place."""

    id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One input to the agent and what is checked of the observation that comes back."""

    id: str
    input: Mapping[str, Any]
    assertions: tuple[SuiteAssertion, ...] = ()
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One ordered conversation. `external` says that it writes to the outside world (`writePolicy`).

    `document` is the scenario as JSON, normalised, in the names of the file: it is what reports show and digests cover.
    """

    id: str
    name: str
    description: str | None = None
    tags: tuple[str, ...] = ()
    external: bool
    skip_reason: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: tuple[Step, ...]
    assertions: tuple[SuiteAssertion, ...] = ()
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite as it was read. `assertions` look at all of its cases; `document` is the whole as normalised JSON."""

    schema_version: int
    id: str
    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scenarios: tuple[Scenario, ...]
    assertions: tuple[SuiteAssertion, ...] = ()
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredScenario:
    """A scenario as the body of an Eval, with its suite and the evaluators that it can name, by their names.

    It stands where an author's function does, and is played instead of called.
    """

    suite: Suite
    scenario: Scenario
    evaluators: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])

    def __call__(self, *_: Any) -> NoReturn:
        raise TypeError(f"the scenario {self.scenario.id!r} is played, not called")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcome:
    """The result of one criterion. `passed` is False for a failure and for an error; `error_code` tells them apart.

    `actual` is what stood at the path, MISSING when nothing did; `expected` what was wanted, MISSING when no value was
    declared. `looked` says that the path was followed, so that `actual` means something. `evidence` is an evaluator's
    own JSON object; `children` are all results of a composite.
    """

    id: str
    kind: str
    passed: bool
    label: str | None = None
    severity: Severity = Severity.REQUIRED
    looked: bool = False
    actual: Any = MISSING
    expected: Any = MISSING
    operator: str | None = None
    path: SuitePath | None = None
    error_code: str | None = None
    reason: str | None = None
    evidence: Mapping[str, Any] | None = None
    children: tuple[SuiteOutcome, ...] = ()
