"""One attempt as text for a terminal: the conversation, the tool calls and the assertion tree with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.coverage import Channel
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.reports import wording
from evalfleet.reports.assertion_tree import assertion_lines
from evalfleet.reports.change_lines import change_lines
from evalfleet.reports.event_lines import event_lines
from evalfleet.reports.figures import counted, money, seconds
from evalfleet.reports.graded import BASES
from evalfleet.reports.judge_lines import judge_lines
from evalfleet.reports.layout import block
from evalfleet.reports.visible import visible, visible_line

TEXT_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptParts:
    """What to show. `limit` cuts long texts for display, None shows them whole; outcomes never depend on it.

    `changes` names the paths that changed in the workdir, `diff` shows how.
    """

    turns: bool = True
    tools: bool = True
    assertions: bool = True
    judge: bool = True
    changes: bool = True
    diff: bool = False
    diagnostics: bool = False
    limit: int | None = TEXT_LIMIT


def render_transcript(case: CaseView, detail: AttemptDetail, parts: TranscriptParts) -> Iterator[str]:
    """The lines of one attempt. Control characters in what an agent said are shown as escapes, never raw."""
    yield from _head(case, detail)
    if parts.turns or parts.tools:
        for turn in detail.turns:
            yield ""
            yield from _turn(turn, parts)
    if (parts.changes or parts.diff) and detail.attribution is not None:
        yield ""
        yield from change_lines(detail.attribution, patches=parts.diff, limit=parts.limit)
    if parts.assertions:
        yield ""
        yield from _assertions(detail, parts.limit)
    if parts.judge and detail.judge_calls:
        yield ""
        yield from judge_lines(detail.judge_calls, parts.limit)
    if detail.attachments:
        yield ""
        yield from _attachments(detail.attachments)
    if parts.diagnostics:
        yield from _diagnostics(detail.diagnostics)


def render_case(case: CaseView) -> Iterator[str]:
    """The lines of a case that nothing was recorded of."""
    yield f"{visible_line(wording.case_name(case))} · arm {visible_line(case.arm)} · {wording.case_result(case)}"
    if case.message:
        yield from block("  ", visible(case.message))


def _head(case: CaseView, detail: AttemptDetail) -> Iterator[str]:
    view = detail.view
    names = f"{visible_line(wording.case_name(case))} · arm {visible_line(case.arm)} · attempt {view.number}"
    yield f"{names} · {_result(view)}"
    facts = [seconds(view.duration), *usage_facts(view.usage)]
    if view.cost_usd is not None:
        facts.append(money(view.cost_usd))
    if case.score_state is not None:
        earned = "unknown" if case.earned is None else f"{case.earned:g} points"
        facts.append(f"score {earned} ({case.score_state.value})")
    yield "  " + " · ".join(facts)
    if detail.sandbox is not None:
        yield f"  {_sandbox(detail.sandbox)}"
    if case.carried_from is not None:
        yield f"  carried from run {case.carried_from[0]}"
    if detail.basis is not None:
        yield f"  judged again: {BASES[detail.basis]}"
        if detail.kept_because:
            yield from block("    ", visible(detail.kept_because))
    if view.message:
        yield from block("  ", visible(view.message))


def _sandbox(use: SandboxUse) -> str:
    parts = (("making", use.making), ("using", use.using), ("closing", use.closing))
    times = ", ".join(f"{what} {seconds(taken)}" for what, taken in parts)
    kept = "" if use.kept is None else f" · kept: orchestrate sandbox enter {visible_line(use.kept)}"
    return f"sandbox {visible_line(use.backend)} · {counted(use.starts, 'start')} · {times}{kept}"


def usage_facts(usage: Usage | None) -> list[str]:
    """Tokens that are known, in words."""
    if usage is None:
        return []
    named = (("in", usage.input_tokens), ("cached", usage.cache_read_tokens), ("out", usage.output_tokens))
    return [f"{counted(tokens, 'token')} {name}" for name, tokens in named if tokens is not None]


def _result(view: AttemptView) -> str:
    word = view.verdict.value if view.verdict else view.outcome.value
    blame = " ".join(part for part in (view.kind.value if view.kind else None, view.code) if part)
    return f"{word} ({visible_line(blame)})" if blame else word


def _turn(turn: TurnRecord, parts: TranscriptParts) -> Iterator[str]:
    status = "no answer" if turn.failure else turn.status.value
    session = f" · session {turn.session + 1}" if turn.session else ""
    waited = (f"{seconds(turn.waited)} waited for its rate",) if turn.waited >= 0.05 else ()
    facts = [status, seconds(turn.duration), *waited, *usage_facts(turn.usage)]
    yield f"turn {turn.index + 1}{session} · {' · '.join(facts)}"
    yield from _input_extras(turn.input)
    yield from event_lines(turn.events, talk=parts.turns, tools=parts.tools, limit=parts.limit)
    if turn.failure:
        yield from block("  ✗ ", visible(turn.failure))
    elif turn.status is TurnStatus.FAILED:
        yield "  ✗ the agent reported that this turn failed"
    yield from _coverage(turn)


def _input_extras(sent: TurnInput) -> Iterator[str]:
    for file in sent.files:
        size = counted(len(file.data), "byte")
        yield f"  file      {visible_line(file.name)} ({visible_line(file.media_type)}, {size})"
    for response in sent.responses:
        answer = response.option_id if response.option_id is not None else response.text or ""
        yield f"  answer    {visible_line(response.request_id)}: {visible_line(answer)}"


def _coverage(turn: TurnRecord) -> Iterator[str]:
    for channel in Channel:
        entry = turn.coverage.entry(channel)
        if not entry.is_complete:
            yield f"  evidence  {channel.value} {entry.state.value}: {visible_line(entry.reason or '')}"


def _assertions(detail: AttemptDetail, limit: int | None) -> Iterator[str]:
    if not detail.assertions:
        yield "no assertions"
        return
    yield "assertions"
    for row in detail.assertions:
        yield from assertion_lines(row, limit)


def _attachments(attachments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in attachments.items():
        size = counted(len(canonical_bytes(value)), "byte")
        yield f"attachment {visible_line(name)} · {size} of JSON, whole with --json"


def _diagnostics(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield ""
        yield "diagnostics"
        yield from block("  ", visible(text))
