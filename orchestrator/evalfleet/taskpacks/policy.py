"""Which changes of a case store are allowed, how often and by whom; everything else is unexpected. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.canonical import canonical_bytes
from evalfleet.taskpacks.diff import Actor, Operation, RecordChange, StateDiff
from evalfleet.taskpacks.state import Collection
from evalfleet.taskpacks.writes import Reverted, Write, reverted


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Allows changes of one kind, from `min` to `max` of them.

    `match` are values that the record has afterwards (before, when it is removed). An update is allowed when no field
    outside `fields` changed. `actor` made it; what the agent had a part in is the agent's.

    Raises ValueError when it allows nothing.
    """

    collection: str
    operation: Operation
    match: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fields: frozenset[str] = frozenset()
    min: int = 0
    max: int = 1
    actor: Actor = Actor.AGENT

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max or self.max == 0:
            raise ValueError(f"{self.collection}: at least {self.min} and at most {self.max} changes allows nothing")
        if (self.operation is Operation.UPDATED) != bool(self.fields):
            raise ValueError(f"{self.collection}: `fields` names what an update may change, and is for updates only")

    def fits(self, change: RecordChange) -> bool:
        """Whether it allows the change, leaving aside how many there are."""
        if (change.row.collection, change.operation) != (self.collection, self.operation):
            return False
        if not self._speaks_of(change.actors) or not {each.field for each in change.fields} <= self.fields:
            return False
        record = change.before if change.after is None else change.after
        return record is not None and all(_equal(record, name, value) for name, value in self.match.items())

    def _speaks_of(self, actors: frozenset[Actor]) -> bool:
        """What the agent had a part in is the agent's, whoever else had one."""
        return self.actor is Actor.AGENT if Actor.AGENT in actors else self.actor in actors

    def document(self) -> dict[str, Any]:
        """The allowance as JSON."""
        return {
            "collection": self.collection,
            "operation": self.operation.value,
            "match": dict(self.match),
            "fields": sorted(self.fields),
            "min": self.min,
            "max": self.max,
            "actor": self.actor.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A diff held against a policy, as JSON values. `clean` says that nothing is unexpected, missing or taken back."""

    expected: tuple[dict[str, Any], ...]
    unexpected: tuple[dict[str, Any], ...]
    missing: tuple[dict[str, Any], ...]
    ignored: tuple[dict[str, Any], ...]
    reverted_changes: tuple[dict[str, Any], ...]
    before_digest: str
    after_digest: str

    @property
    def clean(self) -> bool:
        return not (self.unexpected or self.missing or self.reverted_changes)

    def document(self) -> dict[str, Any]:
        """The whole as one JSON object."""
        return {
            "expected": list(self.expected),
            "unexpected": list(self.unexpected),
            "missing": list(self.missing),
            "ignored": list(self.ignored),
            "reverted_changes": list(self.reverted_changes),
            "clean": self.clean,
            "before_digest": self.before_digest,
            "after_digest": self.after_digest,
        }


def examine(
    policy: Sequence[Allowed], diff: StateDiff, writes: Iterable[Write], schema: Mapping[str, Collection]
) -> Examined:
    """Hold an attributed diff against a policy.

    Each change is claimed by one allowance at most; changes beyond `max` are unexpected, a `min` that is not reached is
    missing. What only the responder or the harness wrote is no doing of the agent: unclaimed, it is ignored.
    """
    claims = _claims(policy, diff.changes)
    counts = [list(claims.values()).count(index) for index in range(len(policy))]
    rest = [change for at, change in enumerate(diff.changes) if at not in claims]
    foreign = [change for change in rest if change.actors and Actor.AGENT not in change.actors]
    taken_back = [each for each in reverted(schema, writes) if each.actor is Actor.AGENT and not _covered(policy, each)]
    return Examined(
        expected=tuple({**diff.changes[at].document(), "rule": rule} for at, rule in sorted(claims.items())),
        unexpected=tuple(change.document() for change in rest if change not in foreign),
        missing=tuple(
            {**rule.document(), "rule": index, "found": count}
            for index, (rule, count) in enumerate(zip(policy, counts, strict=True))
            if count < rule.min
        ),
        ignored=(
            *({**change.document(), "because": "volatile or unordered"} for change in diff.ignored),
            *({**change.document(), "because": "not the agent's"} for change in foreign),
        ),
        reverted_changes=tuple(each.document() for each in taken_back),
        before_digest=diff.before_digest,
        after_digest=diff.after_digest,
    )


def _claims(policy: Sequence[Allowed], changes: Sequence[RecordChange]) -> dict[int, int]:
    """Which allowance claims each change, as many as can be; minima are filled first.

    Augmenting paths: a change may push another to a different allowance, and no allowance ever gives one back.
    """
    fitting = [[index for index, rule in enumerate(policy) if rule.fits(change)] for change in changes]
    claims: dict[int, int] = {}

    def place(change: int, room: Sequence[int], tried: set[int]) -> bool:
        for index in fitting[change]:
            if index in tried:
                continue
            tried.add(index)
            held = [other for other, rule in claims.items() if rule == index]
            if len(held) < room[index] or any(place(other, room, tried) for other in held):
                claims[change] = index
                return True
        return False

    for room in ([rule.min for rule in policy], [rule.max for rule in policy]):
        for change in range(len(changes)):
            if change not in claims:
                place(change, room, set())
    return claims


def _covered(policy: Sequence[Allowed], taken_back: Reverted) -> bool:
    """Whether a field went to and fro that the agent may change."""
    return taken_back.field is not None and any(
        rule.collection == taken_back.row.collection and taken_back.field in rule.fields for rule in policy
    )


def _equal(record: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in record and canonical_bytes(record[name]) == canonical_bytes(value)
