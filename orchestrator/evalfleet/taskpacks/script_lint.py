"""What is wrong with a responder's script: gaps that it has no answer to, rules that nobody reaches, leaks. PURE."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from evalfleet.model.canonical import canonical_bytes
from evalfleet.taskpacks.graders import Gold
from evalfleet.taskpacks.responder import Answer, Cursor, ScriptRule, answer

#: Above so many requirements only single ones, pairs and all together are tried.
_SUBSETS_OF = 8


@dataclass(frozen=True, slots=True)
class ScriptFault:
    """Something wrong with a script, and of which rule, if of one."""

    code: str
    message: str
    rule: str | None = None


def script_faults(
    rules: Sequence[ScriptRule],
    gold: Gold,
    requirements: Mapping[str, Sequence[str]],
    decisions: Iterable[str],
    max_turns: int,
) -> tuple[ScriptFault, ...]:
    """All faults of a script: for each set of unmet requirements that can be asked for, in every turn, there is a rule;
    each rule can be reached; no reply gives away a decision, or a requirement that was not asked for.
    """
    return (
        *_doubled(rules),
        *_unanswered(rules, gold, requirements, max_turns),
        *(fault for rule in rules for fault in _leaks(rule, requirements, decisions)),
        *(
            ScriptFault("unknown-requirement", f"{name!r} is no requirement", rule.id)
            for rule in rules
            for name in sorted((rule.asked | rule.supplies | rule.supplied) - requirements.keys())
        ),
    )


def _doubled(rules: Sequence[ScriptRule]) -> Iterator[ScriptFault]:
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            yield ScriptFault("doubled-rule", "two rules have this id", rule.id)
        seen.add(rule.id)


def _unanswered(
    rules: Sequence[ScriptRule], gold: Gold, requirements: Iterable[str], max_turns: int
) -> Iterator[ScriptFault]:
    """Walks every way in which a conversation can go, as far as the script can tell them apart."""
    reached: set[str] = set()
    missing: dict[frozenset[str], int] = {}
    subsets = list(_subsets(sorted(frozenset(requirements) | {name for rule in rules for name in rule.asked})))
    waiting, known = deque([Cursor()]), set[bytes]()
    while waiting:
        cursor = waiting.popleft()
        for asked in subsets:
            found = answer(rules, asked, cursor)
            if found is not None:
                reached.add(found.rule.id)
                _enqueue(found, waiting, known, max_turns)
            elif asked <= gold.unmet - cursor.supplied:
                missing.setdefault(asked, cursor.answers + 1)
    for asked, turn in missing.items():
        names = ", ".join(sorted(asked))
        yield ScriptFault("missing-rule", f"no rule answers who asks for {names} in turn {turn}")
    for rule in rules:
        if rule.id not in reached:
            yield ScriptFault("unreachable-rule", "no request ever reaches it", rule.id)


def _enqueue(found: Answer, waiting: deque[Cursor], known: set[bytes], max_turns: int) -> None:
    """Go on from an answer, once for each state of the script that rules can tell apart."""
    once: dict[str, Any] = {name: True for name in found.cursor.fired}
    mark = canonical_bytes([found.cursor.answers, once, sorted(found.cursor.supplied)])
    if found.cursor.answers < max_turns - 1 and mark not in known:
        known.add(mark)
        waiting.append(found.cursor)


def _subsets(names: Sequence[str]) -> Iterable[frozenset[str]]:
    sizes = range(1, len(names) + 1) if len(names) <= _SUBSETS_OF else (1, 2, len(names))
    return (frozenset(part) for part in chain.from_iterable(combinations(names, size) for size in sizes))


def _leaks(
    rule: ScriptRule, requirements: Mapping[str, Sequence[str]], decisions: Iterable[str]
) -> Iterator[ScriptFault]:
    for decision in sorted(decisions):
        if _says(rule.reply, decision):
            yield ScriptFault("leaks-decision", f"the reply contains the decision {decision!r}", rule.id)
    for name in given_away(rule.reply, rule.asked, requirements, ()):
        yield ScriptFault("leaks-requirement", f"the reply names {name!r}, which was not asked for", rule.id)


def given_away(reply: str, asked: Iterable[str], requirements: Iterable[str], decisions: Iterable[str]) -> list[str]:
    """The decisions that a reply says, and the requirements that it names and nobody asked for."""
    told = [*sorted(decisions), *sorted(frozenset(requirements) - frozenset(asked))]
    return [name for name in told if _says(reply, name)]


def _says(reply: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", reply, re.IGNORECASE) is not None
