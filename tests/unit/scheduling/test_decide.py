"""The rules of docs/protocol.md, one small story each, told to `decide` alone."""

from __future__ import annotations

from dataclasses import replace

from evalfleet.errors import FailureKind
from evalfleet.model.case import Case
from evalfleet.model.ids import attempt_id
from evalfleet.model.record import (
    Claim,
    CommitBatch,
    Committed,
    EncodedRows,
    EndedAttempt,
    IntentKind,
    OpenIntent,
    PendingCase,
    SealedAttempt,
)
from evalfleet.model.verdict import Outcome, RunStatus, Settlement, Style, Verdict
from evalfleet.scheduling.decide import decide
from evalfleet.scheduling.events import (
    CommitDone,
    Decision,
    Departure,
    EpochConfirmed,
    Event,
    Exchanged,
    FencedOff,
    Finish,
    KillWorker,
    Leave,
    LoadPage,
    PageRead,
    Reply,
    Roster,
    StopAsked,
    Tick,
    WorkerGone,
    Write,
)
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, ExchangeRequest, LiveAttempt
from evalfleet.scheduling.state import STALL_LIMIT, Adoption, RunPolicy, begin


def case(ordinal: int, *, arm: str = "a", external: bool = False) -> Case:
    return Case(
        ordinal=ordinal,
        arm=arm,
        eval_id=f"e/{ordinal}",
        definition="e",
        style=Style.PASS,
        repetition=0,
        content="",
        fingerprint=None,
        external=external,
    )


class Story:
    """A coordinator's state, told events one after another; the store answers when `commit` is called."""

    def __init__(
        self,
        cases: list[Case],
        *,
        policy: RunPolicy | None = None,
        epoch: int = 1,
        adoption: Adoption = Adoption.NONE,
        intents: tuple[OpenIntent, ...] = (),
        recent: tuple[EndedAttempt, ...] = (),
        age: float = 0.0,
    ) -> None:
        claim = Claim(
            run_key=1,
            epoch=epoch,
            commit_seq=0,
            total=len(cases),
            settled=0,
            open_intents=intents,
            recent=recent,
            age=age,
        )
        self.now = 100.0
        self.policy = policy or RunPolicy(concurrency=10)
        self.state = begin(claim, self.policy, self.now, self.now, adoption=adoption)
        self.said: list[Decision] = []
        self.seq: dict[str, int] = {}
        self.settled: set[int] = set()
        self.attempts: set[int] = set()
        self.tell(Tick())
        self.tell(PageRead(tuple(PendingCase(each) for each in cases), last=True))

    def tell(self, event: Event, *, after: float = 0.0) -> list[Decision]:
        while after > 0.4:
            after -= 0.4
            self.now += 0.4
            self.said += decide(self.state, EpochConfirmed(self.now), self.now)
            self.said += decide(self.state, Tick(), self.now)
        self.now += after
        said = decide(self.state, event, self.now)
        self.said += said
        return said

    def call(
        self,
        worker: str = "w",
        *,
        sealed: tuple[SealedAttempt, ...] = (),
        live: tuple[LiveAttempt, ...] = (),
        want: int = 1,
        seq: int | None = None,
        epoch_seen: int | None = None,
    ) -> ExchangeReply | None:
        """One exchange; its reply when it is answered at once."""
        self.seq[worker] = self.seq.get(worker, 0) + 1 if seq is None else max(seq, self.seq.get(worker, 0))
        number = self.seq[worker] if seq is None else seq
        seen = self.state.epoch if epoch_seen is None else epoch_seen
        said = self.tell(Exchanged(ExchangeRequest(worker, number, seen, sealed, live, want, lanes=4)))
        return self.reply(said, worker)

    @staticmethod
    def reply(said: list[Decision], worker: str = "w") -> ExchangeReply | None:
        replies = [each.reply for each in said if isinstance(each, Reply) and each.worker == worker]
        return replies[-1] if replies else None

    def commit(self) -> list[Decision]:
        """Let the store carry out the batch in flight."""
        batch = self.state.inflight
        assert batch is not None, "nothing is in flight"
        inserted = {w.sealed.attempt for w in batch.attempts} - self.attempts
        self.attempts |= inserted | {lost.attempt for lost in batch.lost}
        settled = set[int]()
        for write in batch.attempts:
            if write.settles and write.sealed.attempt in inserted and write.sealed.case not in self.settled:
                self.settled.add(write.sealed.case)
                settled.add(write.sealed.attempt)
        without = {each.case for each in batch.settled} - self.settled
        self.settled |= without
        done = Committed(1, self.state.epoch, frozenset(inserted), frozenset(settled), frozenset(without))
        return self.tell(CommitDone(done, self.now))

    def batches(self) -> list[CommitBatch]:
        return [each.batch for each in self.said if isinstance(each, Write)]


def seal(attempt: int, ordinal: int, outcome: Outcome = Outcome.COMPLETED, **facts: object) -> SealedAttempt:
    verdict = Verdict.PASSED if outcome is Outcome.COMPLETED else Verdict.ERRORED
    return replace(SealedAttempt(attempt, ordinal, outcome, verdict, EncodedRows(b"row")), **facts)  # type: ignore[arg-type]


def granted(reply: ExchangeReply | None) -> list[int]:
    return [] if reply is None else [grant.attempt for grant in reply.grants]


def test_an_acknowledgement_follows_the_commit_and_carries_the_next_grant() -> None:
    story = Story([case(0), case(1)])
    (first,) = granted(story.call())
    assert story.call(sealed=(seal(first, 0),), want=0) is None
    reply = story.reply(story.commit())
    assert reply is not None and reply.acks == (first,) and len(reply.grants) == 1


def test_a_repeated_seal_is_acknowledged_without_another_commit() -> None:
    story = Story([case(0)])
    (first,) = granted(story.call())
    story.call(sealed=(seal(first, 0),), want=0)
    story.commit()
    reply = story.call(sealed=(seal(first, 0),), want=0)
    assert reply is not None and reply.acks == (first,) and len(story.batches()) == 1


def test_a_newer_list_without_the_grant_requeues_it() -> None:
    story = Story([case(0)])
    (lost,) = granted(story.call())
    (again,) = granted(story.call())
    assert again != lost and not story.batches()


def test_an_older_list_frees_nothing_and_is_answered_empty() -> None:
    story = Story([case(0), case(1)])
    (held,) = granted(story.call(want=1))
    story.call(live=(LiveAttempt(held, 0),), want=0)
    reply = story.call(seq=1)
    assert reply == ExchangeReply(1) and held in story.state.workers["w"].leases


def test_a_parked_poll_is_answered_empty_when_a_newer_one_arrives() -> None:
    story = Story([case(0)], policy=RunPolicy(concurrency=1))
    granted(story.call("v"))
    assert story.call() is None
    said = story.tell(Exchanged(ExchangeRequest("w", 2, 1, (), (), 1)))
    assert [(each.seq, each.reply.grants) for each in said if isinstance(each, Reply)] == [(1, ())]


def test_the_second_completed_attempt_of_a_case_settles_nothing() -> None:
    story = Story([case(0)])
    (first,) = granted(story.call("w"))
    stray = attempt_id(1, 999)
    story.call("v", sealed=(seal(stray, 0),), want=0)
    said = story.commit()
    assert story.state.settled == 1 and not any(isinstance(each, Finish) for each in said)
    reply = story.call("w", live=(LiveAttempt(first, 0),), want=0)
    assert reply is not None and reply.commands[0].kind is CommandKind.CANCEL
    story.call("w", sealed=(seal(first, 0),), want=0)
    story.commit()
    assert story.state.settled == 1 and story.state.cases == {}


def test_a_crash_requeues_alone_and_the_second_one_settles_errored() -> None:
    story = Story([case(0)])
    granted(story.call("w"))
    story.tell(WorkerGone("w", Departure.CRASHED))
    story.call("v")
    story.commit()
    reply = story.reply(story.commit(), "v") if story.state.inflight else story.reply(story.said, "v")
    assert reply is not None and reply.grants[0].isolated
    story.call("v", sealed=(_crashed(reply.grants[0].attempt),), want=0)
    story.commit()
    assert story.state.tallies == {"errored": 1}


def _crashed(attempt: int) -> SealedAttempt:
    return seal(attempt, 0, Outcome.ERRORED, kind=FailureKind.WORKER, code="WORKER_CRASHED")


def test_the_death_of_its_worker_is_not_blamed_on_an_isolated_attempt() -> None:
    story = Story([case(0)])
    story.call("w")
    story.tell(WorkerGone("w", Departure.CRASHED))
    story.call("v")
    while story.state.inflight:
        story.commit()
    story.tell(WorkerGone("v", Departure.CRASHED))
    only = story.state.cases[0]
    assert (only.crashes, only.lost) == (1, 1)


def test_an_external_case_is_announced_before_it_is_granted_and_blocked_when_lost() -> None:
    story = Story([case(0, external=True)])
    assert story.call() is None
    assert [intent.kind for intent in story.batches()[0].intents] == [IntentKind.EXTERNAL]
    assert len(granted(story.reply(story.commit()))) == 1
    story.tell(WorkerGone("w", Departure.CRASHED))
    (blocked,) = story.batches()[-1].settled
    assert blocked.how is Settlement.BLOCKED and blocked.code == "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION"


def test_retry_waits_in_backoff_and_holds_no_lane() -> None:
    story = Story([case(0)])
    (first,) = granted(story.call())
    outage = seal(first, 0, Outcome.ERRORED, kind=FailureKind.PROVIDER, retry_after=30.0)
    story.call(sealed=(outage,), want=0)
    story.commit()
    assert story.state.leased == 0 and story.state.cases[0].due >= story.now + 30


def test_limits_of_the_run_and_of_an_arm() -> None:
    cases = [case(0), case(1), case(2, arm="b"), case(3, arm="b")]
    story = Story(cases, policy=RunPolicy(concurrency=3, per_arm={"a": 1}))
    reply = story.call(want=4)
    assert reply is not None and [grant.case.ordinal for grant in reply.grants] == [0, 2, 3]


def test_too_many_errored_cases_limit_the_run() -> None:
    story = Story([case(0), case(1)], policy=RunPolicy(concurrency=1, max_failures=1))
    (first,) = granted(story.call())
    story.call(sealed=(seal(first, 0, Outcome.ERRORED, kind=FailureKind.AGENT),), want=0)
    story.commit()
    story.call()
    finish = [each for each in story.said if isinstance(each, Finish)]
    assert [each.status for each in finish] == [RunStatus.LIMITED]


def test_a_run_that_is_old_enough_starts_nothing_and_lets_what_is_under_way_end() -> None:
    story = Story([case(0), case(1)], policy=RunPolicy(concurrency=1, wall=60, announce_after=1e9), age=55)
    (first,) = granted(story.call())
    for _ in range(3):
        story.tell(Tick(), after=2)
        reply = story.call(live=(LiveAttempt(first, 0),))
        assert reply is None or not reply.commands, "what is under way goes on"
    story.call(sealed=(seal(first, 0),), want=1)
    story.commit()
    story.call()
    finish = [each for each in story.said if isinstance(each, Finish)]
    assert finish == [Finish(RunStatus.LIMITED, "budget.wall of 60 s is over")]
    assert story.state.settled == 1


def test_a_run_whose_last_case_is_under_way_when_its_time_is_over_is_completed() -> None:
    story = Story([case(0)], policy=RunPolicy(concurrency=1, wall=60, announce_after=1e9))
    (first,) = granted(story.call())
    for _ in range(31):
        story.tell(Tick(), after=2)
        story.call(live=(LiveAttempt(first, 0),), want=0)
    story.call(sealed=(seal(first, 0),), want=0)
    story.commit()
    story.call()
    assert [each.status for each in story.said if isinstance(each, Finish)] == [RunStatus.COMPLETED]


def test_cancelling_settles_nothing() -> None:
    story = Story([case(0), case(1)])
    (first,) = granted(story.call())
    story.tell(StopAsked(RunStatus.CANCELLED, "asked", cancel=True))
    reply = story.call(live=(LiveAttempt(first, 0),), want=0)
    assert reply is not None and reply.commands[0].attempt == first
    story.call(sealed=(seal(first, 0, Outcome.CANCELLED, kind=FailureKind.CANCELLED),), want=0)
    story.commit()
    story.call(want=1)
    assert any(isinstance(each, Finish) and each.status is RunStatus.CANCELLED for each in story.said)
    assert story.state.settled == 0


def test_edge_10_an_abort_after_the_last_case_leaves_the_run_completed() -> None:
    story = Story([case(0)])
    (only,) = granted(story.call())
    story.call(sealed=(seal(only, 0),), want=0)
    story.tell(StopAsked(RunStatus.CANCELLED, "asked", cancel=True))
    story.commit()
    story.call(want=0)
    assert [each.status for each in story.said if isinstance(each, Finish)] == [RunStatus.COMPLETED]


def test_nothing_is_granted_until_the_old_leases_are_known() -> None:
    story = Story([case(0), case(1)], epoch=2, adoption=Adoption.ROSTER)
    old = attempt_id(1, 5)
    first = story.call(live=(LiveAttempt(old, 0),), epoch_seen=1)
    assert first is not None and not first.grants, "a first list may be older than the last grant"
    story.tell(Roster(("w",)))
    reply = story.call(live=(LiveAttempt(old, 0),), epoch_seen=2)
    assert reply is not None and [grant.case.ordinal for grant in reply.grants] == [1]
    assert old in story.state.workers["w"].leases


def test_an_open_intent_that_nobody_holds_becomes_an_interrupted_attempt() -> None:
    intent = OpenIntent(attempt_id(1, 5), 0, "gone", IntentKind.LEASE, 50.0)
    story = Story([case(0)], epoch=2, intents=(intent,))
    (lost,) = [each for batch in story.batches() for each in batch.lost]
    assert (lost.attempt, lost.code, lost.blamed) == (intent.attempt, "RUN_INTERRUPTED", False)


def test_a_silent_worker_loses_its_leases_after_ttl_and_grace() -> None:
    story = Story([case(0)], policy=RunPolicy(concurrency=1, stall_limit=1e9))
    granted(story.call())
    story.tell(Tick(), after=34.0)
    assert story.state.leased == 1
    story.tell(Tick(), after=2.0)
    assert story.state.leased == 0 and story.state.cases[0].lost == 1


def test_a_pause_of_our_own_expires_nothing_and_grants_nothing() -> None:
    story = Story([case(0), case(1)], policy=RunPolicy(concurrency=2, stall_limit=1e9))
    (first,) = granted(story.call())
    story.now += 60
    story.tell(Tick())
    assert story.state.leased == 1
    assert granted(story.call(live=(LiveAttempt(first, 0),))) == [], "the epoch was not confirmed for too long"
    story.tell(EpochConfirmed(story.now))
    assert len(granted(story.reply(story.said))) == 1


def test_a_worker_that_does_not_ask_again_is_killed() -> None:
    story = Story([case(0)])
    granted(story.call())
    story.tell(Tick(), after=STALL_LIMIT - 1.0)
    assert [each for each in story.said if isinstance(each, KillWorker)] == []
    story.tell(Tick(), after=2.0)
    assert [each.worker for each in story.said if isinstance(each, KillWorker)] == ["w"]


def test_a_fenced_coordinator_leaves_without_a_word() -> None:
    story = Story([case(0)])
    assert story.tell(FencedOff()) == [Leave()]
    late = story.call()
    assert late is not None and late.commands[0].kind is CommandKind.STOP and not late.grants


def test_the_run_ends_only_when_nobody_holds_anything() -> None:
    story = Story([case(0)])
    (first,) = granted(story.call())
    story.call(sealed=(seal(first, 0),), want=0)
    story.commit()
    assert not any(isinstance(each, Finish) for each in story.said)
    story.call()
    assert [each for each in story.said if isinstance(each, Finish)] == [Finish(RunStatus.COMPLETED, None)]


def test_a_page_is_never_read_beside_a_commit() -> None:
    policy = RunPolicy(concurrency=10, page_size=2)
    story = Story([], policy=policy)
    story.state.read_all, story.state.total, story.state.over = False, 4, False
    (load,) = [each for each in story.tell(Tick()) if isinstance(each, LoadPage)]
    assert load.limit == 2
    story.state.buffer.closed.append(7)
    assert not any(isinstance(each, Write) for each in story.tell(Tick()))
    said = story.tell(PageRead((PendingCase(case(0)), PendingCase(case(1))), last=False))
    assert any(isinstance(each, Write) for each in said)
