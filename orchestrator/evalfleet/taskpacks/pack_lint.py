"""What is wrong with a pack and its assignments before any agent works on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.pack import TaskPack
from evalfleet.taskpacks.script_lint import ScriptFault, script_faults
from evalfleet.taskpacks.state import InvalidRecord


@dataclass(frozen=True, slots=True)
class PackFault:
    """Something wrong: with an assignment, or without one with the pack itself."""

    assignment: str | None
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.assignment or 'the pack'}: {self.message} [{self.code}]"


def pack_faults(pack: TaskPack) -> Iterator[PackFault]:
    """What is wrong with the pack whatever its rows are."""
    names = [tool.name for tool in pack.tools]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield PackFault(None, "doubled-tool", f"two tools are named {name!r}")
    words = [(word.casefold(), key) for key, others in pack.requirements.items() for word in (key, *others)]
    for word in sorted({word for word, key in words if any(word == w and key != k for w, k in words)}):
        yield PackFault(None, "ambiguous-name", f"{word!r} names two requirements, which no text can tell apart")


def assignment_faults(pack: TaskPack, assignment: Assignment) -> Iterator[PackFault]:
    """What is wrong with one row: its snapshot, its policy, its gold, its script."""
    try:
        pack.start(assignment)
        pack.allowed(assignment)
    except (InvalidRecord, ValueError) as error:
        yield PackFault(assignment.id, "invalid-start", str(error))
    for point in assignment.gold:
        if point.decision not in pack.decisions:
            yield PackFault(assignment.id, "unknown-decision", f"gold decides {point.decision!r}, which nobody can")
        for name in sorted(point.unmet - pack.requirements.keys()):
            yield PackFault(assignment.id, "unknown-requirement", f"gold lacks {name!r}, which is no requirement")
        if point.at is not None and point.at >= assignment.max_turns:
            yield PackFault(assignment.id, "late-gold", f"gold at turn {point.at} of at most {assignment.max_turns}")
    if assignment.user is not None:
        if pack.user_model is None:
            yield PackFault(assignment.id, "no-user-model", "it has a user, and the pack no user_model to play it")
        for name in sorted(assignment.user.holds.keys() - pack.requirements.keys()):
            yield PackFault(assignment.id, "unknown-requirement", f"the user holds {name!r}, which is no requirement")
    for fault in _script_faults(pack, assignment):
        rule = "" if fault.rule is None else f"rule {fault.rule!r}: "
        yield PackFault(assignment.id, fault.code, f"{rule}{fault.message}")


def _script_faults(pack: TaskPack, assignment: Assignment) -> Iterator[ScriptFault]:
    """The faults of the script against the first gold, which is what an agent may ask for first."""
    if assignment.script:
        first = min(assignment.gold, key=lambda point: point.at or assignment.max_turns + 1)
        known = {name: tuple(others) for name, others in pack.requirements.items()}
        yield from script_faults(assignment.script, first.gold, known, pack.decisions, assignment.max_turns)
