"""An attempt's rows as binary COPY tuples, encoded once in the worker.

The field orders here are those of `ATTEMPT_FIELDS` and its siblings; the coordinator's staging tables are made
from the same names, so the two cannot drift apart. The last fields of an attempt, `settles`, `excused` and `worker`,
are the coordinator's to say: `finished` appends them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import struct
from collections.abc import Sequence

from evalfleet.model.assertion import AssertionRow
from evalfleet.model.case import AttemptSummary
from evalfleet.model.events import MISSING, OperationFinished, OperationStarted
from evalfleet.model.judge import JudgeCall
from evalfleet.model.record import AttemptEvidence, EncodedRows, SealedAttempt
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from evalfleet.ports import ArtifactStore
from evalfleet.store import binary
from evalfleet.store.binary import NULL, Cells, boolean, finite, label, plain, raw
from evalfleet.store.blobs import Packer, reference, to_json
from evalfleet.store.paging import INLINE_LIMIT, Page, encode_events, inline_size, inline_text, page_events
from evalfleet.store.record_codec import encode_event, encode_head

ATTEMPT_FIELDS = (
    "attempt", "started_at", "duration", "run_key", "ordinal", "turns", "events", "assertions", "outcome", "verdict",
    "kind", "score_state", "earned", "estimated_usd", "cost_usd", "input_tokens", "output_tokens",
    "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "requests", "unknown_calls",
    "code", "message", "skip_reason", "reply", "sanitised", "number_marks", "record", "contradicted", "settles",
    "excused", "worker",
)  # fmt: skip
ASSERTION_FIELDS = (
    "attempt", "run_key", "index", "result", "name", "scope", "holds", "optional", "measurement", "points", "earned",
    "label", "key", "reason", "group_path", "number_marks",
)  # fmt: skip
TOOL_CALL_FIELDS = (
    "attempt", "run_key", "step", "turn", "operation_id", "name", "tool", "operation", "arguments", "status", "result",
)  # fmt: skip
JUDGE_CALL_FIELDS = (
    "attempt", "started_at", "latency", "run_key", "call", "assertion", "repetition", "vote", "version", "tries",
    "cached", "request", "prompt", "recipe", "model", "score", "label", "rationale", "repairs", "code", "message",
    "reply", "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "cost_usd", "number_marks",
)  # fmt: skip
PAGE_FIELDS = ("attempt", "first", "last", "run_key", "page", "raw_size", "body")

#: Bodies of one attempt above this many compressed bytes go to the artifact store.
ARTIFACT_LIMIT = 1 << 20
_PREVIEW = 280
#: Attempts of no more events are encoded in one go, in the hope that they are small; most are.
_FEW_EVENTS = 64
_MANY_EVENTS = 2000
_ARGUMENTS = 2048

# attempt, started_at, duration, run_key, ordinal, turns, events, assertions: never NULL, so packed in one go
_ATTEMPT_HEAD = struct.Struct(">h" + "iq" + "iq" + "id" + "ii" * 5)
_ASSERTION_HEAD = struct.Struct(">h" + "iq" + "ii" * 2)
_TOOL_CALL_HEAD = struct.Struct(">h" + "iq" + "ii" * 3)
_PAGE_HEAD = struct.Struct(">h" + "iq" * 3 + "ii" * 3)
_JUDGE_CALL_HEAD = struct.Struct(">h" + "iq" * 2 + "id" + "ii" * 4 + "ih" * 3)


class EvidenceEncoder:
    """Encodes the attempts of one run; one per worker, used from one thread.

    `artifacts` takes bodies above 1 MiB; without it they stay in the rows.
    """

    def __init__(self, run_key: int, artifacts: ArtifactStore | None = None, run_id: str = "") -> None:
        self._run_key = run_key
        self._artifacts = artifacts
        self._run_id = run_id
        self._packer = Packer()

    async def encode(self, evidence: AttemptEvidence) -> SealedAttempt:
        """The sealed attempt with its rows.

        Raises AttemptFailure of kind adapter when the evidence is no JSON, StoreError when the artifact store
        cannot be reached.
        """
        if _is_large(evidence):  # a second of work: not on the loop
            record, pages = await asyncio.to_thread(_bodies, evidence, Packer())
            record, pages = await self._moved(record, pages)
            return await asyncio.to_thread(_seal, self._run_key, evidence, record, pages)
        return _seal(self._run_key, evidence, *await self._moved(*_bodies(evidence, self._packer)))

    def encode_inline(self, evidence: AttemptEvidence) -> SealedAttempt:
        """As `encode`, with everything in the rows whatever its size."""
        return _seal(self._run_key, evidence, *_bodies(evidence, self._packer))

    async def _moved(self, record: bytes, pages: list[Page]) -> tuple[bytes, list[Page]]:
        """Large bodies exchanged for references to the artifact store."""
        if self._artifacts is None or len(record) + sum([len(page.body) for page in pages]) <= ARTIFACT_LIMIT:
            return record, pages
        if len(record) > ARTIFACT_LIMIT // 2:
            record = reference(await self._artifacts.put(self._run_id, record))
        return record, [page.moved(reference(await self._artifacts.put(self._run_id, page.body))) for page in pages]


def finished(rows: EncodedRows, settles: bool, worker: str, *, excused: bool = False) -> bytes:
    """The tuple of the attempt with what its coordinator says of it."""
    return rows.attempt + boolean(settles) + boolean(excused) + plain(worker)


def encode_attempt(evidence: AttemptEvidence, run_key: int) -> SealedAttempt:
    """One attempt encoded with everything in its rows; use an EvidenceEncoder for more than one."""
    return EvidenceEncoder(run_key).encode_inline(evidence)


def _is_large(evidence: AttemptEvidence) -> bool:
    if sum([len(turn.events) for turn in evidence.turns]) > _MANY_EVENTS:
        return True
    windows = () if evidence.attribution is None else evidence.attribution.windows
    return sum(len(change.patch or b"") for window in windows for change in window.changes) > ARTIFACT_LIMIT


def _bodies(evidence: AttemptEvidence, packer: Packer) -> tuple[bytes, list[Page]]:
    if sum([len(turn.events) for turn in evidence.turns]) <= _FEW_EVENTS:
        streams = [[encode_event(event) for event in turn.events] for turn in evidence.turns]
        whole = to_json([encode_head(evidence), *streams])
        if len(whole) <= INLINE_LIMIT:
            return packer.pack(whole), []
    head = to_json(encode_head(evidence))
    turns = [encode_events(turn.events) for turn in evidence.turns]
    if inline_size(turns) <= INLINE_LIMIT:
        return packer.pack(f"[{','.join((head, *map(inline_text, turns)))}]"), []
    return packer.pack(f"[{head}]"), page_events(itertools.chain.from_iterable(turns), packer)


def _seal(run_key: int, evidence: AttemptEvidence, record: bytes, pages: Sequence[Page]) -> SealedAttempt:
    summary = evidence.summary
    judging = [0.0 if call.cached else _known(call.cost_usd) for call in evidence.judge_calls]
    rows = EncodedRows(
        attempt=_attempt(run_key, summary, record),
        assertions=b"".join([_assertion(run_key, summary.attempt, row) for row in evidence.assertions]),
        tool_calls=b"".join(_tool_calls(run_key, summary.attempt, evidence.turns)),
        pages=b"".join([_page(run_key, summary.attempt, number, page) for number, page in enumerate(pages)]),
        judge_calls=b"".join(
            [_judge_call(run_key, summary.attempt, number, call) for number, call in enumerate(evidence.judge_calls)]
        ),
    )
    return SealedAttempt(
        attempt=summary.attempt,
        case=summary.case,
        outcome=summary.outcome,
        verdict=summary.verdict,
        rows=rows,
        kind=summary.kind,
        code=summary.code,
        retry_after=summary.retry_after,
        acceptance_unknown=summary.acceptance_unknown,
        cost_usd=_cost(summary),
        tokens=None if summary.usage is None else summary.usage.total_tokens,
        judge_usd=math.fsum(cost for cost in judging if cost is not None),
        unknown_judge_cost=judging.count(None),
    )


def _cost(summary: AttemptSummary) -> float | None:
    """What is known of the price: observed, else estimated; a number that no double can hold is unknown."""
    observed = None if summary.usage is None else summary.usage.cost_usd
    return _known(summary.estimated_usd if observed is None else observed)


def _known(cost: float | None) -> float | None:
    return None if cost is None else finite(cost)


def _attempt(run_key: int, summary: AttemptSummary, record: bytes) -> bytes:
    cells = Cells()
    usage = summary.usage
    head = _ATTEMPT_HEAD.pack(
        len(ATTEMPT_FIELDS),
        *(8, summary.attempt, 8, binary.microseconds(summary.started_at), 8, summary.duration),
        *(4, run_key, 4, summary.case, 4, summary.turns, 4, summary.events, 4, summary.assertions),
    )
    parts = [
        head,
        label(summary.outcome),
        label(summary.verdict),
        label(summary.kind),
        label(summary.score_state),
        cells.number("earned", summary.earned),
        cells.number("estimated_usd", summary.estimated_usd),
    ]
    if usage is None:
        parts.append(NULL * 8)
    else:
        parts += (
            cells.number("cost_usd", usage.cost_usd),
            cells.count("input_tokens", usage.input_tokens),
            cells.count("output_tokens", usage.output_tokens),
            cells.count("cache_read_tokens", usage.cache_read_tokens),
            cells.count("cache_write_tokens", usage.cache_write_tokens),
            cells.count("reasoning_tokens", usage.reasoning_tokens),
            cells.count("requests", usage.requests),
            cells.count("unknown_calls", usage.unknown_calls or None),
        )
    parts += (
        cells.text(summary.code),
        cells.text(summary.message),
        cells.text(summary.skip_reason),
        cells.text(summary.reply, _PREVIEW),
        boolean(cells.sanitised),
        cells.marked(),
        raw(record),
        boolean(summary.contradicted),
    )
    return b"".join(parts)


def _assertion(run_key: int, attempt: int, row: AssertionRow) -> bytes:
    cells = Cells()
    outcome, policy = row.outcome, row.policy
    return b"".join(
        (
            _ASSERTION_HEAD.pack(len(ASSERTION_FIELDS), 8, attempt, 4, run_key, 4, row.index),
            label(outcome.result),
            cells.text(row.name),
            cells.text(row.scope),
            boolean(row.holds),
            boolean(policy.optional),
            cells.number("measurement", outcome.measurement),
            cells.number("points", policy.points),
            cells.number("earned", row.earned),
            cells.text(row.label),
            cells.text(row.key),
            cells.text(outcome.reason),
            cells.text(" / ".join(row.group)) if row.group else NULL,
            cells.marked(),
        )
    )


def _tool_calls(run_key: int, attempt: int, turns: Sequence[TurnRecord]) -> list[bytes]:
    rows: list[bytes] = []
    for turn in turns:
        calls = [event for event in turn.events if isinstance(event, OperationStarted)]
        if calls:
            ends = {event.operation_id: event for event in turn.events if isinstance(event, OperationFinished)}
            rows += [
                _tool_call((run_key, attempt, step, turn.sequence), call, ends.get(call.operation_id))
                for step, call in enumerate(calls, len(rows))
            ]
    return rows


def _tool_call(
    place: tuple[int, int, int, int], started: OperationStarted, finished: OperationFinished | None
) -> bytes:
    run_key, attempt, step, turn = place
    cells = Cells()
    arguments = started.raw_input if started.input is MISSING else to_json(started.input)
    result = None if finished is None or finished.output is MISSING else to_json(finished.output)
    return b"".join(
        (
            _TOOL_CALL_HEAD.pack(len(TOOL_CALL_FIELDS), 8, attempt, 4, run_key, 4, step, 4, turn),
            cells.text(started.operation_id),
            cells.text(started.name),
            cells.text(started.tool),
            label(started.kind),
            cells.text(arguments, _ARGUMENTS),
            label(None if finished is None else finished.status),
            cells.text(result, _PREVIEW),
        )
    )


def _judge_call(run_key: int, attempt: int, number: int, call: JudgeCall) -> bytes:
    cells = Cells()
    ruling, usage = call.ruling, call.usage or Usage()
    head = _JUDGE_CALL_HEAD.pack(
        len(JUDGE_CALL_FIELDS),
        *(8, attempt, 8, binary.microseconds(call.started_at), 8, call.latency),
        *(4, run_key, 4, number, 4, call.assertion, 4, call.repetition),
        *(2, call.vote, 2, call.version, 2, call.tries),
    )
    return b"".join(
        (
            head,
            boolean(call.cached),
            raw(bytes.fromhex(call.request)),
            raw(bytes.fromhex(call.prompt)),
            cells.text(call.recipe),
            cells.text(call.model),
            cells.number("score", None if ruling is None else ruling.score),
            cells.text(None if ruling is None else ruling.label),
            cells.text(None if ruling is None else ruling.rationale),
            cells.text(", ".join(ruling.repairs) if ruling is not None and ruling.repairs else None),
            cells.text(call.code),
            cells.text(call.message),
            # a later call may be answered with it, so it is kept exactly
            raw(None if call.reply is None else call.reply.encode("utf-8", "surrogatepass")),
            cells.count("input_tokens", usage.input_tokens),
            cells.count("output_tokens", usage.output_tokens),
            cells.count("cache_read_tokens", usage.cache_read_tokens),
            cells.count("reasoning_tokens", usage.reasoning_tokens),
            cells.number("cost_usd", call.cost_usd),
            cells.marked(),
        )
    )


def _page(run_key: int, attempt: int, number: int, page: Page) -> bytes:
    head = _PAGE_HEAD.pack(
        len(PAGE_FIELDS),
        *(8, attempt, 8, page.first, 8, page.last),
        *(4, run_key, 4, number, 4, page.raw_size),
    )
    return head + raw(page.body)
