"""The evidence of attempts that wait to be judged: as bytes for the coordinator, and read back by whoever judges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import StoreError
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.ports import ArtifactStore
from evalfleet.store.blobs import Packer, reference, to_json
from evalfleet.store.connection import Connection
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.lifeline import Lifeline
from evalfleet.store.paging import INLINE_LIMIT
from evalfleet.store.record_codec import Decoded, decode, encode_event, encode_head

#: Seconds to wait for a store that is away before the attempt is given up and tried again.
_PATIENCE = 60.0

_FIND = "SELECT body FROM recordings WHERE run_key = %s AND ordinal = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of an attempt: its evidence, when it began (seconds since the epoch), its seconds, its skip.

    `questions` are those that its judge has still to answer, by the index of the assertion; `begun_by` is the attempt
    that began its conversation.
    """

    evidence: Decoded
    started_at: float
    duration: float
    skip_reason: str | None
    questions: Mapping[int, Sequence[Question]]
    begun_by: int | None = None

    def as_evidence(self, attempt: int, case: Case) -> AttemptEvidence:
        """What another attempt of the case starts from; its summary holds only what was recorded of it."""
        summary = AttemptSummary(
            attempt=attempt,
            case=case.ordinal,
            outcome=Outcome.COMPLETED,
            verdict=Verdict.ERRORED,
            skip_reason=self.skip_reason,
            started_at=self.started_at,
            duration=self.duration,
            sandbox=self.evidence.sandbox,
        )
        found = self.evidence
        return AttemptEvidence(
            summary=summary,
            turns=found.turns,
            assertions=found.assertions,
            diagnostics=found.diagnostics,
            judge_calls=found.judge_calls,
            attribution=found.attribution,
            attachments=found.attachments,
            begun_by=self.begun_by,
        )


class Recordings:
    """The recordings of one run. Reads over one connection, made when the first is wanted."""

    def __init__(self, url: str, run_key: int, run: str, artifacts: ArtifactStore) -> None:
        self._run_key = run_key
        self._run = run
        self._artifacts = artifacts
        self._evidence = EvidenceReader(artifacts)
        self._lifeline = Lifeline(url, _prepare, _PATIENCE)

    async def encode(self, evidence: AttemptEvidence, questions: Mapping[int, Sequence[Question]]) -> bytes:
        """The body of a recording; large ones go to the artifact store.

        Raises AttemptFailure of kind adapter when the evidence is no JSON, StoreError when the artifact store can't
        be reached.
        """
        body = await asyncio.to_thread(_body, evidence, questions)
        return body if len(body) <= INLINE_LIMIT else reference(await self._artifacts.put(self._run, body))

    async def read(self, ordinal: int) -> Recorded:
        """The recording of a case. Raises StoreError when there is none or the store stays away."""

        async def work(connection: Connection) -> bytes | None:
            row = await (await connection.execute(_FIND, (self._run_key, ordinal))).fetchone()
            return None if row is None else row[0]

        body = await self._lifeline.run(work)
        if body is None:
            raise StoreError(f"run {self._run} has no recording of case {ordinal}")
        facts, asked, head, *events = await self._evidence.value(self._run, body)
        return Recorded(
            evidence=decode(head, events),
            started_at=facts[0],
            duration=facts[1],
            skip_reason=facts[2],
            questions=_questions(asked),
            begun_by=facts[3] if len(facts) > 3 else None,
        )

    async def close(self) -> None:
        await self._lifeline.close()


def _questions(asked: Sequence[Sequence[Any]]) -> dict[int, list[Question]]:
    found: dict[int, list[Question]] = {}
    for index, recipe, text, material, choices in asked:
        found.setdefault(index, []).append(Question(recipe=recipe, text=text, material=material, choices=choices))
    return found


def _body(evidence: AttemptEvidence, questions: Mapping[int, Sequence[Question]]) -> bytes:
    summary = evidence.summary
    facts = [summary.started_at, summary.duration, summary.skip_reason, evidence.begun_by or summary.attempt]
    streams = [[encode_event(event) for event in turn.events] for turn in evidence.turns]
    asked = [
        [index, each.recipe, each.text, each.material, each.choices] for index, own in questions.items() for each in own
    ]
    return Packer().pack(to_json([facts, asked, encode_head(evidence), *streams]))


async def _prepare(connection: Connection) -> None:
    await connection.execute("SET default_transaction_read_only = on")
