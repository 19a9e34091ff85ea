"""Evidence to rows and back: exact in the record, safe in the columns."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given

from evalfleet.errors import AttemptFailure, FailureKind, StoreError
from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, FileFacts, Window
from evalfleet.model.events import MISSING, Event, Message, OperationFinished, OperationStarted, OperationStatus, Role
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.usage import Usage
from evalfleet.store.blobs import PLAIN, ZSTD_DICTIONARY, Packer, Unpacker, referenced
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.paging import INLINE_LIMIT, PAGE_LIMIT
from evalfleet.store.record_codec import Decoded
from evalfleet.store.rows import (
    ASSERTION_FIELDS,
    ATTEMPT_FIELDS,
    JUDGE_CALL_FIELDS,
    PAGE_FIELDS,
    TOOL_CALL_FIELDS,
    EvidenceEncoder,
    encode_attempt,
    finished,
)
from tests.integration.store.samples import evidence
from tests.unit.store.evidences import evidences
from tests.unit.store.memory_artifacts import MemoryArtifacts
from tests.unit.store.tuples import parse, parse_all

_GOLDEN = "1128b52ffd20513d010090203432222c223a7d2c5b312c322c332c5d5d060029f5a090358a161390cb81d2902764643310"
OWN_FIELDS = len(ATTEMPT_FIELDS) - 3  # the coordinator appends the last three


#: What an agent changed, of which some is no text, with a size that no record keeps inline.
CHANGES = Attribution(
    windows=(
        Window(
            label="turn1",
            by=ChangedBy.AGENT,
            before="a" * 40,
            after="b" * 40,
            changes=(
                Change(path="a \udcff", kind=ChangeKind.ADDED, after=FileFacts(0o100644, 3, "c" * 40), patch=b"\xff\0"),
                Change(path="b", kind=ChangeKind.MODIFIED, patch=Random(1).randbytes(1 << 20)),
                Change(path="c", kind=ChangeKind.DELETED, patch=None),
            ),
        ),
    ),
)


def attempt_fields(found: AttemptEvidence) -> dict[str, bytes | None]:
    return parse(encode_attempt(found, 7).rows.attempt, ATTEMPT_FIELDS, OWN_FIELDS)


def with_events(*events: Event) -> AttemptEvidence:
    base = evidence(1, 0)
    return replace(base, turns=(replace(base.turns[0], events=events),))


async def read_back(found: AttemptEvidence, artifacts: MemoryArtifacts | None = None) -> Decoded:
    encoder = EvidenceEncoder(7, artifacts, "r1")
    sealed = await encoder.encode(found)
    record = parse(sealed.rows.attempt, ATTEMPT_FIELDS, OWN_FIELDS)["record"]
    pages = [page["body"] or b"" for page in parse_all(sealed.rows.pages, PAGE_FIELDS)]
    return await EvidenceReader(artifacts).decoded("r1", record or b"", pages)


def assert_same(found: Decoded, given: AttemptEvidence) -> None:
    # by repr, under which NaN equals itself and -0.0 is not 0.0
    assert repr(found.turns) == repr(given.turns)
    assert repr(found.assertions) == repr(given.assertions)
    assert found.diagnostics == given.diagnostics
    assert repr(found.extra) == repr(given.summary.extra)
    assert found.message == given.summary.message
    assert repr(found.judge_calls) == repr(given.judge_calls)
    assert found.attribution == given.attribution
    assert repr(found.attachments) == repr(given.attachments)


async def test_many_changed_bytes_stand_in_the_artifact_store() -> None:
    given = replace(evidence(1, 0), attribution=CHANGES)
    artifacts = MemoryArtifacts()
    assert_same(await read_back(given, artifacts), given)
    assert len(artifacts.objects) == 1


@given(evidences)
async def test_whatever_happened_reads_back_exactly(found: AttemptEvidence) -> None:
    assert_same(await read_back(found), found)


@given(evidences)
def test_whatever_happened_makes_columns_that_postgres_can_hold(found: AttemptEvidence) -> None:
    sealed = encode_attempt(found, 7)
    tuples = [parse(finished(sealed.rows, True, "w1"), ATTEMPT_FIELDS)]
    tuples += parse_all(sealed.rows.assertions, ASSERTION_FIELDS)
    tuples += parse_all(sealed.rows.tool_calls, TOOL_CALL_FIELDS)
    calls = parse_all(sealed.rows.judge_calls, JUDGE_CALL_FIELDS)
    tuples += [{name: value for name, value in call.items() if name != "reply"} for call in calls]
    for name, value in (pair for fields in tuples for pair in fields.items()):
        if value is None or name == "record":
            continue
        if name in ("earned", "estimated_usd", "cost_usd", "measurement", "points", "duration"):
            (number,) = struct.unpack(">d", value)
            assert abs(number) < float("inf"), name
        elif name in (
            "code",
            "message",
            "reply",
            "label",
            "key",
            "reason",
            "name",
            "scope",
            "arguments",
            "result",
            "rationale",
        ):
            assert b"\0" not in value.decode("utf-8").encode("utf-8"), name


@pytest.mark.parametrize(
    ("text", "column", "sanitised"),
    [
        ("plain", "plain", False),
        ("nul \0 here", "nul \ufffd here", True),
        ("lone \ud800 surrogate", "lone \ufffd surrogate", True),
        ("emoji \U0001f600", "emoji \U0001f600", False),
    ],
)
async def test_a_text_column_holds_a_sanitised_copy_and_says_so(text: str, column: str, sanitised: bool) -> None:
    found = evidence(1, 0, message=text)
    fields = attempt_fields(found)
    assert (fields["message"] or b"").decode() == column
    assert fields["sanitised"] == bytes([sanitised])
    assert (await read_back(found)).message == text


@pytest.mark.parametrize(
    ("field", "value", "marks"),
    [
        ("earned", float("nan"), "earned=nan"),
        ("earned", float("inf"), "earned=inf"),
        ("estimated_usd", float("-inf"), "estimated_usd=-inf"),
        ("earned", 10**400, f"earned={hex(10**400)}"),
        ("earned", 0.5, None),
    ],
)
def test_a_number_that_is_not_finite_is_marked_and_loses_no_row(field: str, value: float, marks: str | None) -> None:
    fields = attempt_fields(evidence(1, 0, **{field: value}))
    assert encode_attempt(evidence(1, 0, **{field: value}), 7).cost_usd is None
    assert (fields[field] is None) == (marks is not None)
    assert fields["number_marks"] == (None if marks is None else marks.encode())


def test_a_count_above_64_bits_is_marked_with_its_exact_value() -> None:
    found = evidence(1, 0)
    for tokens, fits in ((3_000_000_000, True), (2**63 - 1, True), (2**63, False), (10**400, False)):
        fields = attempt_fields(replace(found, summary=replace(found.summary, usage=Usage(input_tokens=tokens))))
        assert (fields["input_tokens"] == struct.pack(">q", tokens)) if fits else fields["input_tokens"] is None
        assert fields["number_marks"] == (None if fits else f"input_tokens={hex(tokens)}".encode())


async def test_missing_null_and_empty_stay_three_things() -> None:
    base = evidence(1, 0)
    for data in (MISSING, None, {}, [], "", 0, False, {"k": 1, "l": []}, {"k": "1", "l": ["x"]}):
        found = replace(base, turns=(replace(base.turns[0], data=data),))
        back = (await read_back(found)).turns[0].data
        assert back is data or (back == data and type(back) is type(data))


async def test_an_integer_above_2_to_the_53_keeps_every_digit() -> None:
    found = with_events(OperationStarted("1", "order", {"order": 9007199254740993}))
    assert (await read_back(found)).turns == found.turns
    (call,) = parse_all(encode_attempt(found, 7).rows.tool_calls, TOOL_CALL_FIELDS)
    assert call["arguments"] == b'{"order":9007199254740993}'


# --- size -----------------------------------------------------------------------------------------------------


def test_a_null_attempt_is_small() -> None:
    rows = encode_attempt(evidence(1 << 40, 0), 1).rows
    record = parse(rows.attempt, ATTEMPT_FIELDS, OWN_FIELDS)["record"]
    assert record is not None
    assert record[:1] == ZSTD_DICTIONARY
    assert len(record) < 140
    assert rows.size < 450


@pytest.mark.parametrize("extra", [0, 1], ids=["at the limit", "one above"])
def test_events_leave_the_record_above_64_kib(extra: int) -> None:
    shell = len('["message","user",""]')
    found = with_events(Message(Role.USER, "x" * (INLINE_LIMIT - shell + extra)))
    assert bool(encode_attempt(found, 7).rows.pages) == bool(extra)


async def test_pages_are_bounded_hold_ranges_and_read_back() -> None:
    base = evidence(1, 0)
    turns = tuple(
        replace(base.turns[0], sequence=turn, events=tuple(Message(Role.USER, f"{turn} {n} " * 90) for n in range(700)))
        for turn in range(3)
    )
    huge = replace(base.turns[0], sequence=3, events=(Message(Role.USER, "y" * (PAGE_LIMIT + 1)),))
    empty = replace(base.turns[0], sequence=4, events=())
    found = replace(base, turns=(*turns, huge, empty))
    pages = parse_all(encode_attempt(found, 7).rows.pages, PAGE_FIELDS)
    ranges = [(number(page["first"]), number(page["last"]), number(page["raw_size"])) for page in pages]
    assert ranges[0][0] == 0 and ranges[-1][1] == 2100
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ranges))
    assert all(size <= PAGE_LIMIT + 2 or first == last for first, last, size in ranges)
    assert_same(await read_back(found), found)


async def test_very_large_bodies_go_to_the_artifact_store() -> None:
    noise = "".join(chr(0x4E00 + (n * n * 2654435761 >> 7) % 20000) for n in range(600_000))
    found = with_events(Message(Role.USER, noise), Message(Role.ASSISTANT, noise[::-1]))
    artifacts = MemoryArtifacts()
    sealed = await EvidenceEncoder(7, artifacts, "r1").encode(found)
    assert sealed.rows.size < 1000
    assert all(referenced(page["body"] or b"") for page in parse_all(sealed.rows.pages, PAGE_FIELDS))
    assert_same(await read_back(found, artifacts), found)
    with pytest.raises(StoreError, match="artifact store"):
        await EvidenceReader(None).value("r1", parse_all(sealed.rows.pages, PAGE_FIELDS)[0]["body"] or b"")


# --- what can't be kept ---------------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({1, 2}, "EVIDENCE_NOT_JSON"),
        (object(), "EVIDENCE_NOT_JSON"),
        (10**5000, "EVIDENCE_NOT_JSON"),
        (nested(100_000), "EVIDENCE_TOO_DEEP"),
        (cyclic(), "EVIDENCE_TOO_DEEP"),
    ],
    ids=["set", "object", "5000 digits", "deep", "cyclic"],
)
def test_evidence_that_is_no_json_is_a_typed_failure_of_the_adapter(data: Any, code: str) -> None:
    base = evidence(1, 0)
    with pytest.raises(AttemptFailure) as caught:
        encode_attempt(replace(base, turns=(replace(base.turns[0], data=data),)), 7)
    assert (caught.value.kind, caught.value.code) == (FailureKind.ADAPTER, code)


@pytest.mark.parametrize("body", [b"", b"\x77abc", ZSTD_DICTIONARY + b"junk", PLAIN + b"{", PLAIN])
def test_a_damaged_body_is_refused(body: bytes) -> None:
    with pytest.raises(StoreError):
        Unpacker().unpack(body)


def test_a_body_of_the_first_dictionary_can_be_read_for_ever() -> None:
    """Written when the format was fixed: changing the dictionary or the codec would lose what is stored."""
    stored = bytes.fromhex(_GOLDEN)
    assert Unpacker().unpack(stored) == ["the final answer is 42", {"coverage": "partial"}, [1, 2, 3] * 5]
    assert Packer().pack('["the final answer is 42",{"coverage":"partial"},[1,2,3,1,2,3,1,2,3,1,2,3,1,2,3]]')


# --- the trace ------------------------------------------------------------------------------------------------


def test_tool_calls_are_numbered_in_order_and_paired_with_their_end() -> None:
    found = with_events(
        OperationStarted("a", "search", {"q": 1}, tool="web_search"),
        OperationStarted("b", "bash", raw_input="not json {"),
        OperationFinished("b", OperationStatus.FAILED, "boom"),
        OperationFinished("a", output={"hits": 2}),
        OperationStarted("c", "wait"),
    )
    calls = parse_all(encode_attempt(found, 7).rows.tool_calls, TOOL_CALL_FIELDS)
    assert [(number(c["step"]), c["name"], c["arguments"], c["status"], c["result"]) for c in calls] == [
        (0, b"search", b'{"q":1}', b"completed", b'{"hits":2}'),
        (1, b"bash", b"not json {", b"failed", b'"boom"'),
        (2, b"wait", None, None, None),
    ]


def number(field: bytes | None) -> int:
    assert field is not None
    return int.from_bytes(field, "big")
