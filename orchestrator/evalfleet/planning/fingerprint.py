"""What makes a past result reusable: digests of everything that shapes an attempt, kept field by field. Pure.

In it: the eval's source closure, its identity and style, its fixture; the row (added per Case); the version of
the evaluation algorithm; the judge of an eval that asks one; the arm's adapter and version, model, flags, options,
target and agent; the resolved sandbox plan. Not in it: credentials (only names of secrets exist here), labels,
descriptions, limits, budgets, concurrency, file times, absolute paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from evalfleet.grading.judge_prompts import RECIPE_VERSIONS
from evalfleet.model.canonical import digest
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.suite import DeclaredScenario
from evalfleet.planning.arms import ArmPlan
from evalfleet.ports import AgentIdentity

#: Of a scenario: what people call it by.
_SCENARIO_NAMES = frozenset({"name", "description", "tags", "skipReason"})

#: Raised when matching, folding or scoring changes meaning: results of another version are not carried.
EVALUATION_VERSION = 1

_EVALUATION = digest(EVALUATION_VERSION)
_NO_FIXTURE = digest({})
_NO_SANDBOX = digest(None)


@dataclass(frozen=True, slots=True)
class FingerprintParts:
    """Digests by field name, so that a plan can say which field changed."""

    fields: Mapping[str, str]

    def digest(self) -> str:
        return digest(dict(self.fields))

    def joined(self, other: FingerprintParts) -> FingerprintParts:
        return FingerprintParts({**self.fields, **other.fields})

    def changed(self, before: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the fields that differ from `before`, or stand on one side only."""
        names = dict.fromkeys([*self.fields, *before])
        return tuple(name for name in names if self.fields.get(name) != before.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrint:
    """What was found out about an arm's agent: `sources` maps files of its closure to digests, `target` is the
    target's fingerprint as text."""

    identity: AgentIdentity
    sources: Mapping[str, str]
    target: str | None

    @property
    def missing(self) -> str | None:
        """Why the agent can't be fingerprinted, or None when it is."""
        if self.sources or self.identity.digest or self.target:
            return None
        reason = self.identity.reason or "nothing identifies its agent"
        return f"{reason}; set target.fingerprint to a text or a command like $(git rev-parse HEAD)"


def arm_parts(arm: ArmPlan, agent: AgentPrint) -> FingerprintParts:
    """The arm's own fields."""
    settings = arm.settings
    return FingerprintParts(
        {
            "adapter": digest([settings.adapter, agent.identity.version]),
            "model": digest(settings.model),
            "flags": digest(_plain(settings.flags)),
            "options": digest(_plain(settings.options)),
            "agent": digest([dict(agent.sources), agent.identity.digest]),
            "target": digest([settings.target.id, agent.target]),
        }
    )


def eval_parts(
    definition: EvalDefinition,
    sources: Mapping[str, str],
    fixture: Mapping[str, str],
    judge: JudgeConfig | None = None,
    criteria: Mapping[str, str] | None = None,
) -> FingerprintParts:
    """The eval's fields: who it is, its source closure, its fixture folder, the evaluation algorithm, its judge and
    what its criteria hold.
    """
    fields = {
        "eval": digest([definition.id, definition.style.value]),
        "source": digest(dict(sources)),
        "fixture": digest(dict(fixture)) if fixture else _NO_FIXTURE,
        "evaluation": _EVALUATION,
    }
    if judge is not None:
        fields["judge"] = digest([judge.identity(), dict(RECIPE_VERSIONS)])
    if criteria:
        fields["criteria"] = digest(dict(criteria))
    return FingerprintParts(fields)


def scenario_digest(declared: DeclaredScenario) -> str:
    """The digest of all of a scenario that shapes an attempt of it: not what it is called, nor its labels."""
    document = {name: part for name, part in declared.scenario.document.items() if name not in _SCENARIO_NAMES}
    return digest([declared.suite.schema_version, _unlabelled(document)])


def sandbox_parts(spec: SandboxSpec | None, files: Mapping[str, str], build: Mapping[str, str]) -> FingerprintParts:
    """The resolved sandbox plan, its starting files and what its image is built from by content instead of by path."""
    if spec is None:
        return FingerprintParts({"sandbox": _NO_SANDBOX})
    built = [] if spec.build is None else [dict(build)]
    return FingerprintParts({"sandbox": digest([_plain_spec(spec), dict(files), *built])})


def _plain_spec(spec: SandboxSpec) -> dict[str, Any]:
    bare = replace(spec, files=None)
    resources, changes = spec.resources, spec.changes
    followed = {} if changes is None else {"changes": [list(changes.ignore), list(changes.include)]}
    return {
        "backend": bare.backend,
        "image": bare.image,
        "setup": list(bare.setup),
        "env": _plain(bare.env),
        "env_from": list(bare.env_from),
        "network": bare.network if isinstance(bare.network, str) else list(bare.network),
        "resources": [resources.cpus, resources.memory, resources.pids, resources.disk],
        "user": bare.user,
        **followed,
    }


def _unlabelled(value: Any) -> Any:
    """`value` without the labels of the assertions in it."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        if "label" in items and "kind" in items and "id" in items:
            items = {name: item for name, item in items.items() if name != "label"}
        return {name: _unlabelled(item) if isinstance(item, dict | list) else item for name, item in items.items()}
    return [_unlabelled(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)
