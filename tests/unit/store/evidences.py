"""Any evidence an attempt may leave, for properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.case import AttemptSummary
from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, FileFacts, Window
from evalfleet.model.coverage import COMPLETE_COVERAGE, Coverage, complete, partial, unavailable
from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    InputOption,
    InputRequested,
    Message,
    ModelRequest,
    ModelResponse,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.model.judge import JudgeCall, JudgeMessage, Ruling
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import InputFile, InputResponse, Stop, StopKind, TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, ScoreState, Verdict

#: Any Python text: NUL and lone surrogates included.
texts = st.text(st.characters(), max_size=12)
maybe_texts = st.none() | texts
numbers = st.integers() | st.integers(-(10**400), 10**400) | st.floats()
#: Any JSON value: null, NaN and integers above 64 bits included.
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
maybe_values: st.SearchStrategy[Any] = st.just(MISSING) | values
counts = st.none() | st.integers(0, 10**30)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Message, st.sampled_from(Role), texts),
    st.builds(Thinking, texts),
    st.builds(OperationStarted, texts, texts, maybe_values, st.sampled_from(OperationKind), maybe_texts, maybe_texts),
    st.builds(OperationFinished, texts, st.sampled_from(OperationStatus), maybe_values, st.sampled_from(OperationKind)),
    st.builds(SkillLoaded, texts, maybe_texts),
    st.builds(
        InputRequested,
        maybe_texts,
        maybe_texts,
        maybe_texts,
        maybe_values,
        st.lists(st.builds(InputOption, texts, maybe_texts), max_size=2).map(tuple),
    ),
    st.builds(ContextInjected, texts, maybe_texts),
    st.builds(Compaction, maybe_texts),
    st.builds(ErrorReported, texts),
    st.builds(Unrecognised, texts, maybe_values),
    st.builds(
        ModelRequest,
        call_id=texts,
        model=maybe_texts,
        instruction_digest=maybe_texts,
        instructions=maybe_texts,
        prompt_id=maybe_texts,
        prompt_revision=maybe_texts,
        tools=st.lists(texts, max_size=2).map(tuple),
        messages=counts,
        body=maybe_values,
    ),
    st.builds(
        ModelResponse,
        call_id=texts,
        outcome=texts,
        status=counts,
        duration=st.none() | st.floats(0, 1e9),
        usage=st.none() | st.builds(Usage, input_tokens=counts, output_tokens=counts),
        body=maybe_texts,
    ),
)

entries = st.just(complete) | st.builds(lambda reason: partial(f"because {reason}"), texts)
coverages = st.just(COMPLETE_COVERAGE) | st.builds(
    Coverage,
    events=entries,
    actions=entries,
    messages=entries,
    usage=st.just(unavailable("not reported")),
    status=entries,
    data=entries,
)

usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
    requests=counts,
    cost_usd=st.none() | st.floats(),
    unknown_calls=st.integers(0, 5),
)

inputs = st.builds(TurnInput, texts) | st.builds(
    TurnInput,
    texts,
    st.lists(st.builds(InputFile, texts, texts, st.binary(max_size=20)), max_size=2).map(tuple),
    st.lists(st.builds(InputResponse, texts, maybe_texts, maybe_texts), max_size=2).map(tuple),
    st.none() | st.dictionaries(texts, values, max_size=2),
    st.none() | st.dictionaries(texts, values, max_size=2),
)

objects = st.none() | st.dictionaries(texts, values, max_size=2)

turns = st.builds(
    TurnRecord,
    session=st.integers(0, 3),
    index=st.integers(0, 3),
    sequence=st.integers(0, 9),
    input=inputs,
    status=st.sampled_from(TurnStatus),
    events=st.lists(events, max_size=4).map(tuple),
    data=maybe_values,
    usage=st.none() | usages,
    coverage=coverages,
    started_at=st.floats(0, 4e9),
    duration=st.floats(0, 1e6),
    failure=maybe_texts,
    observation=objects,
    session_state=objects,
    stop=st.none() | st.builds(Stop, st.sampled_from(StopKind), texts),
)

results = st.recursive(
    st.builds(
        AssertionResult,
        result=st.sampled_from(Result),
        reason=maybe_texts,
        expected=maybe_values,
        actual=maybe_values,
        measurement=st.none() | st.floats(),
    ),
    lambda children: st.builds(
        AssertionResult, result=st.sampled_from(Result), children=st.lists(children, max_size=2).map(tuple)
    ),
    max_leaves=3,
)
policies = st.builds(
    AssertionPolicy,
    gate=st.none() | st.booleans(),
    gate_min=st.none() | st.floats(),
    at_least=st.none() | st.floats(),
    points=st.none() | st.floats(),
    optional=st.booleans(),
)
assertions = st.builds(
    AssertionRow,
    index=st.integers(0, 99),
    name=texts,
    scope=texts,
    criterion=values,
    policy=policies,
    outcome=results,
    label=maybe_texts,
    key=maybe_texts,
    group=st.lists(texts, max_size=2).map(tuple),
    source=maybe_texts,
    earned=st.none() | st.floats(),
    holds=st.none() | st.booleans(),
)

digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
judge_calls = st.builds(
    JudgeCall,
    assertion=st.integers(0, 99),
    repetition=st.integers(0, 99),
    vote=st.integers(0, 98),
    recipe=texts,
    version=st.integers(1, 99),
    model=texts,
    request=digests,
    prompt=digests,
    messages=st.lists(st.builds(JudgeMessage, texts, texts), max_size=2).map(tuple),
    started_at=st.floats(0, 4e9),
    latency=st.floats(0, 1e6),
    tries=st.integers(0, 3),
    cached=st.booleans(),
    reply=maybe_texts,
    ruling=st.none()
    | st.builds(
        Ruling,
        score=st.floats(0, 1),
        label=maybe_texts,
        rationale=maybe_texts,
        repairs=st.lists(texts, max_size=2).map(tuple),
    ),
    usage=st.none() | usages,
    cost_usd=st.none() | st.floats(),
    code=maybe_texts,
    message=maybe_texts,
)

summaries = st.builds(
    AttemptSummary,
    attempt=st.integers(0, 2**62),
    case=st.integers(0, 2**31 - 1),
    outcome=st.sampled_from([Outcome.COMPLETED, Outcome.ERRORED, Outcome.CANCELLED]),
    verdict=st.sampled_from(Verdict),
    kind=st.none() | st.sampled_from(FailureKind),
    code=maybe_texts,
    message=maybe_texts,
    score_state=st.none() | st.sampled_from(ScoreState),
    earned=st.none() | st.floats(),
    skip_reason=maybe_texts,
    usage=st.none() | usages,
    estimated_usd=st.none() | st.floats(),
    started_at=st.floats(0, 4e9),
    duration=st.floats(0, 1e6),
    reply=maybe_texts,
    extra=st.dictionaries(texts, values, max_size=2),
)

facts = st.none() | st.builds(
    FileFacts, st.sampled_from((0o100644, 0o100755, 0o120000)), st.integers(0, 1 << 62), texts
)
changes = st.builds(
    Change,
    path=texts,
    kind=st.sampled_from(ChangeKind),
    before=facts,
    after=facts,
    binary=st.booleans(),
    ignored=st.booleans(),
    patch=st.none() | st.binary(max_size=20),
)
windows = st.builds(
    Window,
    label=texts,
    by=st.sampled_from(ChangedBy),
    before=texts,
    after=texts,
    changes=st.lists(changes, max_size=3).map(tuple),
    omitted=st.integers(0, 1 << 40),
    unread=st.lists(texts, max_size=2).map(tuple),
)
attributions = st.builds(Attribution, windows=st.lists(windows, max_size=3).map(tuple), error=maybe_texts)

evidences = st.builds(
    AttemptEvidence,
    summary=summaries,
    turns=st.lists(turns, max_size=3).map(tuple),
    assertions=st.lists(assertions, max_size=2).map(tuple),
    diagnostics=st.lists(texts, max_size=2).map(tuple),
    judge_calls=st.lists(judge_calls, max_size=2).map(tuple),
    attribution=st.none() | attributions,
    attachments=st.dictionaries(texts, values, max_size=2),
)
