"""Attempts whose agent is done and that wait to be judged, as `decide` sees them."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.ids import attempt_id
from evalfleet.model.record import CommitBatch, IntentKind, OpenIntent, PendingCase, Recording
from evalfleet.model.verdict import Outcome, Settlement
from evalfleet.scheduling.events import Departure, Exchanged, PageRead, Tick, WorkerGone
from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest, Grant, LiveAttempt
from evalfleet.scheduling.state import RunPolicy
from tests.unit.scheduling.test_decide import Story, case, granted, seal


def record(
    story: Story, attempt: int, ordinal: int = 0, worker: str = "w", turns: int | None = None
) -> ExchangeReply | None:
    """The worker's next call, in which the attempt is live and recorded, whole or in its first `turns`."""
    story.seq[worker] = story.seq.get(worker, 0) + 1
    recorded = (Recording(attempt, ordinal, b"evidence", turns),)
    live = (LiveAttempt(attempt, ordinal),)
    request = ExchangeRequest(worker, story.seq[worker], story.state.epoch, (), live, 0, lanes=4, recorded=recorded)
    return story.reply(story.tell(Exchanged(request)), worker)


def written(story: Story) -> CommitBatch:
    return story.batches()[-1]


def regranted(story: Story, worker: str = "v") -> bool:
    """Whether the case's next grant, once its intent is durable, judges a recording."""
    return next_grant(story, worker).recorded


def next_grant(story: Story, worker: str = "v") -> Grant:
    """The case's next grant, once its intent is durable."""
    story.call(worker)
    while story.state.inflight is not None:
        reply = story.reply(story.commit(), worker)
        if reply is not None and reply.grants:
            (grant,) = reply.grants
            return grant
    raise AssertionError("nothing was granted")


def test_a_recording_may_be_judged_once_it_is_durable() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    assert record(story, attempt) is None
    assert [each.attempt for each in written(story).recordings] == [attempt]
    reply = story.reply(story.commit())
    assert reply is not None and reply.recorded == (attempt,)


def test_one_that_is_durable_is_said_again_and_written_once() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.commit()
    reply = record(story, attempt)
    assert reply is not None and reply.recorded == (attempt,) and len(story.batches()) == 1


def test_after_a_loss_the_recording_is_judged_and_the_agent_left_alone() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    assert regranted(story)


def test_a_loss_while_the_recording_is_being_committed_needs_no_agent_either() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.tell(WorkerGone("w", Departure.CRASHED))
    assert regranted(story)


def test_an_external_case_that_was_recorded_is_judged_instead_of_blocked() -> None:
    story = Story([case(0, external=True)])
    assert story.call() is None
    (attempt,) = granted(story.reply(story.commit()))
    record(story, attempt)
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    assert not written(story).settled and regranted(story)
    assert written(story).intents[0].kind is IntentKind.LEASE


def test_an_external_case_that_was_not_recorded_is_blocked() -> None:
    story = Story([case(0, external=True)])
    story.call()
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    assert [each.how for each in written(story).settled] == [Settlement.BLOCKED]


def test_a_verdict_spends_the_recording_in_the_same_commit() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.commit()
    story.call(sealed=(seal(attempt, 0),), want=0)
    assert written(story).spent_recordings == (0,)


def test_an_attempt_that_fails_after_it_was_recorded_runs_the_agent_again() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.commit()
    failed = seal(attempt, 0, Outcome.ERRORED, kind=FailureKind.SANDBOX, code="SANDBOX_CLOSE_FAILED")
    story.call(sealed=(failed,), want=0)
    assert written(story).spent_recordings == (0,) and not story.state.cases[0].recorded


def test_an_attempt_that_counts_as_lost_leaves_the_recording_to_be_judged() -> None:
    story = Story([case(0, external=True)], policy=RunPolicy(concurrency=1, stall_limit=1e9))
    story.call()
    (attempt,) = granted(story.reply(story.commit()))
    record(story, attempt)
    story.commit()
    story.tell(Tick(), after=36.0)
    story.commit()
    story.call(sealed=(seal(attempt, 0),), want=0)
    story.commit()
    assert not any(batch.spent_recordings for batch in story.batches()) and story.state.cases[0].recorded


def test_a_cancelled_attempt_keeps_its_recording() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt)
    story.commit()
    story.call(sealed=(seal(attempt, 0, Outcome.CANCELLED),), want=0)
    assert not written(story).spent_recordings


def test_a_claim_learns_of_recordings_from_the_page_and_from_the_intents() -> None:
    told = Story([case(0)])
    told.state.cases.clear()
    told.state.ready.clear()
    told.tell(PageRead((PendingCase(case(0), recorded=True),), last=True))
    assert regranted(told)
    intent = OpenIntent(attempt_id(1, 0), 0, "w", IntentKind.EXTERNAL, 50.0, recorded=True)
    resumed = Story([case(0, external=True)], epoch=2, intents=(intent,))
    assert not any(batch.settled for batch in resumed.batches())


def test_a_beginning_is_confirmed_turn_by_turn_and_written_once_each() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    for turns in (1, 2):
        assert record(story, attempt, turns=turns) is None
        assert [each.turns for each in written(story).recordings] == [turns]
        reply = story.reply(story.commit())
        assert reply is not None and reply.recorded == (attempt,)
        again = record(story, attempt, turns=turns)
        assert again is not None and again.recorded == (attempt,) and len(story.batches()) == turns


def test_after_a_loss_the_conversation_is_continued_and_nothing_judged() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt, turns=1)
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    grant = next_grant(story)
    assert grant.begun and not grant.recorded


def test_a_whole_recording_after_a_beginning_is_what_counts() -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call())
    record(story, attempt, turns=1)
    story.commit()
    record(story, attempt)
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    grant = next_grant(story)
    assert grant.recorded and not grant.begun


def test_a_verdict_spends_a_beginning_and_so_does_a_failure_of_its_agent() -> None:
    for sealed in (seal, lambda *of: seal(*of, Outcome.ERRORED, kind=FailureKind.PROVIDER, code="X")):
        story = Story([case(0)])
        (attempt,) = granted(story.call())
        record(story, attempt, turns=1)
        story.commit()
        story.call(sealed=(sealed(attempt, 0),), want=0)
        assert written(story).spent_recordings == (0,)


def test_a_beginning_never_lets_an_external_case_run_again() -> None:
    story = Story([case(0, external=True)])
    story.call()
    (attempt,) = granted(story.reply(story.commit()))
    record(story, attempt, turns=1)
    story.commit()
    story.tell(WorkerGone("w", Departure.CRASHED))
    assert [each.how for each in written(story).settled] == [Settlement.BLOCKED]


def test_a_claim_learns_of_beginnings_from_the_page() -> None:
    told = Story([case(0)])
    told.state.cases.clear()
    told.state.ready.clear()
    told.tell(PageRead((PendingCase(case(0), begun=True),), last=True))
    grant = next_grant(told)
    assert grant.begun and not grant.recorded
