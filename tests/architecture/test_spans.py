"""Spans are timing that an agent says of itself: no import leads from what judges, or gathers evidence, to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import pytest

from tests.architecture.source import Source, product_sources

#: What says whether an agent did well, and what gathers and carries that by which it is said.
JUDGING = (
    "evalfleet.assertions",
    "evalfleet.grading",
    "evalfleet.suites",
    "evalfleet.execution",
    "evalfleet.taskpacks",
    "evalfleet.model.assertion",
    "evalfleet.model.coverage",
    "evalfleet.model.events",
    "evalfleet.model.grading",
    "evalfleet.model.record",
    "evalfleet.model.turn",
    "evalfleet.model.usage",
    "evalfleet.model.verdict",
)
SPANS = ("evalfleet.telemetry", "evalfleet.model.span")


def within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def edges(sources: Iterable[Source]) -> Mapping[str, set[str]]:
    """Module → the modules of ours that it names, those that only type checkers read included."""
    by_name = {source.module: source for source in sources}
    return {
        name: {
            whole if (whole := f"{item.module}.{item.name}") in by_name else item.module
            for item in source.imports
            if item.module in by_name or f"{item.module}.{item.name}" in by_name
        }
        for name, source in by_name.items()
    }


def ways(graph: Mapping[str, set[str]], start: Iterable[str], goal: Iterable[str]) -> list[str]:
    """The shortest chain of imports from a module of `start` to each module of `goal` that one leads to."""
    came: dict[str, str | None] = {module: None for module in graph if within(module, start)}
    waiting = deque(came)
    found: list[str] = []
    while waiting:
        module = waiting.popleft()
        if within(module, goal):
            found.append(_chain(came, module))
            continue
        for reached in sorted(graph.get(module, ())):
            if reached not in came:
                came[reached] = module
                waiting.append(reached)
    return found


def _chain(came: Mapping[str, str | None], module: str) -> str:
    steps = [module]
    while (before := came[steps[-1]]) is not None:
        steps.append(before)
    return " → ".join(reversed(steps))


def test_no_import_leads_from_what_judges_to_spans() -> None:
    assert ways(edges(product_sources()), JUDGING, SPANS) == []


def test_what_judges_and_what_spans_are_is_there() -> None:
    """A room that is renamed would make the rule one that nothing breaks."""
    modules = [source.module for source in product_sources()]
    assert [name for name in (*JUDGING, *SPANS) if not any(within(module, (name,)) for module in modules)] == []


def test_spans_are_seen_where_they_may_be() -> None:
    """The rule looks along real imports: the receiver does reach the values of spans."""
    assert ways(edges(product_sources()), ["evalfleet.telemetry.receiver"], ["evalfleet.model.span"]) == [
        "evalfleet.telemetry.receiver → evalfleet.telemetry.bodies → evalfleet.model.span"
    ]


@pytest.mark.parametrize(
    ("judging", "between", "way"),
    [
        ("from evalfleet.model.span import Span", "", "evalfleet.assertions.x → evalfleet.model.span"),
        ("from evalfleet.model import span", "", "evalfleet.assertions.x → evalfleet.model.span"),
        ("def f():\n    import evalfleet.model.span", "", "evalfleet.assertions.x → evalfleet.model.span"),
        (
            "if TYPE_CHECKING:\n    from evalfleet.model.span import Span",
            "",
            "evalfleet.assertions.x → evalfleet.model.span",
        ),
        (
            "from evalfleet.between import find",
            "from evalfleet.model.span import Span",
            "evalfleet.assertions.x → evalfleet.between → evalfleet.model.span",
        ),
        ("import json", "from evalfleet.model.span import Span", None),
    ],
)
def test_the_rule_sees_what_it_forbids(judging: str, between: str, way: str | None) -> None:
    sources = [
        Source("x.py", "evalfleet.assertions.x", judging),
        Source("between.py", "evalfleet.between", between),
        Source("span.py", "evalfleet.model.span", ""),
    ]
    assert ways(edges(sources), JUDGING, SPANS) == ([] if way is None else [way])
