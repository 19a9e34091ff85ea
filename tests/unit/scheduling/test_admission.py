"""Limits on sandboxes and what an outage does to an arm, told to `decide` alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evalfleet.errors import FailureKind
from evalfleet.model.ids import attempt_id
from evalfleet.model.record import AttemptWrite, EndedAttempt, PendingCase
from evalfleet.model.verdict import Outcome, RunStatus
from evalfleet.scheduling import admission
from evalfleet.scheduling.breaker import FIRST_PROBE, PAUSES_AT
from evalfleet.scheduling.events import Exchanged, Finish, PageRead, Reply, Roster, Tick
from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest, Grant, LiveAttempt, MadeSandbox
from evalfleet.scheduling.pace import FIRST_ROOM
from evalfleet.scheduling.state import Adoption, RunPolicy
from tests.unit.scheduling.test_decide import Story, case, granted, seal

BOXED = RunPolicy(concurrency=100, sandboxed=frozenset({"a"}))


def ordinals(reply: ExchangeReply | None) -> list[int]:
    return [] if reply is None else [grant.case.ordinal for grant in reply.grants]


class Outage(Story):
    """A story whose worker runs attempts one after the other, each failing or not."""

    def attempt(self, *, fails: bool) -> AttemptWrite | None:
        """The worker is granted a case and runs it; what was written about it, None when nothing is granted."""
        grants = self._granted()
        if not grants:
            return None
        (grant,) = grants
        how = {"outcome": Outcome.ERRORED, "kind": FailureKind.SANDBOX, "code": "DOWN"} if fails else {}
        self.call(sealed=(seal(grant.attempt, grant.case.ordinal, **how),), want=0)
        (write,) = self.batches()[-1].attempts
        self.commit()
        return write

    def _granted(self) -> tuple[Grant, ...]:
        """What the worker's open call is answered with, or a new one if that was answered with nothing."""
        for _ in range(2):
            while self.state.inflight is not None:
                self.commit()
            answers = [each.reply for each in self.said if isinstance(each, Reply) and each.seq == self.seq.get("w")]
            grants = [grant for answer in answers for grant in answer.grants]
            if grants:
                return tuple(grants)
            if answers or not self.seq:
                self.call()
        return ()

    def go_down(self) -> list[AttemptWrite]:
        writes = [self.attempt(fails=True) for _ in range(PAUSES_AT)]
        return [write for write in writes if write is not None]


def outage(**policy: object) -> Outage:
    return Outage([case(n) for n in range(60)], policy=replace(BOXED, **policy))  # type: ignore[arg-type]


def test_no_more_sandboxes_than_the_limit_and_nothing_else_waits_for_one() -> None:
    story = Story([*(case(n) for n in range(4)), *(case(n, arm="b") for n in range(4, 8))], policy=BOXED)
    story.state.policy = replace(BOXED, sandboxes=2)
    assert ordinals(story.call(want=8)) == [0, 1, 4, 5, 6, 7]


def test_an_adopted_lease_counts_as_a_sandbox_until_its_arm_is_known() -> None:
    policy = replace(BOXED, sandboxes=1)
    story = Story([], policy=policy, epoch=2, adoption=Adoption.ROSTER)
    story.state.total, story.state.read_all = 3, False
    old = LiveAttempt(attempt_id(1, 5), 2)
    story.call(live=(old,), epoch_seen=1)
    story.tell(Roster(("w",)))
    story.tell(PageRead((PendingCase(case(0)), PendingCase(case(1, arm="b"))), last=False))
    reply = story.call(live=(old,), want=4)
    assert ordinals(reply) == [1]
    story.tell(PageRead((PendingCase(case(2, arm="b")),), last=True))
    both = (old, LiveAttempt(granted(reply)[0], 1))
    assert ordinals(story.call(live=both, want=4)) == [0]


def test_starts_keep_to_their_rate_and_a_refusal_costs_nothing() -> None:
    story = Story([case(n) for n in range(9)], policy=replace(BOXED, sandbox_starts=0.5, isolated=True))
    live: tuple[LiveAttempt, ...] = ()
    story.call(want=9)
    for _ in range(65):
        story.tell(Tick(), after=0.1)
        grants = [grant for each in story.said if isinstance(each, Reply) for grant in each.reply.grants]
        live = tuple(LiveAttempt(grant.attempt, grant.case.ordinal) for grant in grants)
        if story.state.workers["w"].poll is None:
            story.call(live=live, want=9 - len(live))
    assert len(live) == 3


def test_room_for_starts_opens_as_sandboxes_come_to_be() -> None:
    story = Story([case(n) for n in range(9)], policy=replace(BOXED, sandbox_starts=100.0))
    story.tell(Tick(), after=1.0)
    first = granted(story.call(want=9))
    assert len(first) == FIRST_ROOM
    live = tuple(LiveAttempt(attempt, n) for n, attempt in enumerate(first))
    made = tuple(MadeSandbox(attempt, 0.1) for attempt in first[:2])
    said = story.tell(Exchanged(ExchangeRequest("w", 2, 1, (), live, 5, lanes=9, made=made)))
    assert len(granted(story.reply(said))) == 2


def test_failures_of_what_is_around_an_arm_pause_it_and_it_alone() -> None:
    story = Outage([*(case(n) for n in range(30)), case(30, arm="b")], policy=BOXED)
    writes = story.go_down()
    assert [write.excused for write in writes] == [False] * (PAUSES_AT - 1) + [True]
    assert admission.paused(story.state) == {"a": "10 of the last 10 attempts ended with sandbox: DOWN"}
    last = story.attempt(fails=False)
    assert last is not None and last.sealed.case == 30
    assert story.attempt(fails=False) is None


def test_a_paused_arm_is_probed_and_one_that_goes_well_sets_it_going() -> None:
    story = outage()
    story.go_down()
    assert story.attempt(fails=True) is None
    story.tell(Tick(), after=FIRST_PROBE + 0.1)
    probe = story.attempt(fails=True)
    assert probe is not None and probe.excused and story.attempt(fails=True) is None
    story.tell(Tick(), after=2 * FIRST_PROBE + 1)
    assert story.attempt(fails=False) is not None
    assert all(story.attempt(fails=False) is not None for _ in range(5))
    assert admission.paused(story.state) == {}


def test_cases_that_failed_come_after_those_that_were_not_tried() -> None:
    story = outage()
    tried = [write.sealed.case for write in story.go_down()]
    for _ in range(20):
        story.tell(Tick(), after=61.0)
        write = story.attempt(fails=True)
        assert write is not None
        tried.append(write.sealed.case)
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_nothing_is_settled_by_an_outage(max_attempts: int) -> None:
    story = outage(max_attempts=max_attempts, outage=1e9)
    before = [write.settles for write in story.go_down()]
    assert before == [max_attempts == 1] * (PAUSES_AT - 1) + [False]
    for _ in range(20):
        story.tell(Tick(), after=61.0)
        write = story.attempt(fails=True)
        assert write is not None and write.excused and not write.settles


def test_failures_that_are_not_to_be_retried_are_results() -> None:
    story = outage(retry_on=frozenset({FailureKind.PROVIDER}))
    writes = [story.attempt(fails=True) for _ in range(60)]
    assert all(write is not None and write.settles and not write.excused for write in writes)


def test_an_external_case_is_settled_by_its_failure_all_the_same() -> None:
    story = Outage([*(case(n) for n in range(10)), case(10, external=True)], policy=BOXED)
    story.go_down()
    story.tell(Tick(), after=FIRST_PROBE)
    write = story.attempt(fails=True)
    assert write is not None and write.sealed.case == 10 and write.settles and not write.excused


def test_a_run_that_only_waits_for_a_paused_arm_is_limited_in_the_end() -> None:
    story = outage(outage=300.0)
    story.go_down()
    for _ in range(4):
        story.tell(Tick(), after=61.0)
        story.attempt(fails=True)
    assert story.state.stopping is None
    story.tell(Tick(), after=61.0)
    story.attempt(fails=True)
    story.tell(Tick())
    story.call()
    (finish,) = [each for each in story.said if isinstance(each, Finish)]
    assert finish.status is RunStatus.LIMITED
    assert finish.reason == (
        "paused for the 300 s of limits.outage, arm a: 15 of the last 15 attempts ended with sandbox: DOWN"
    )


def test_a_run_goes_on_as_long_as_another_arm_does() -> None:
    story = Outage([case(0, arm="b"), *(case(n) for n in range(1, 30))], policy=replace(BOXED, outage=100.0))
    (held,) = granted(story.call("v"))
    story.go_down()
    for _ in range(5):
        story.tell(Tick(), after=31.0)
        story.call("v", live=(LiveAttempt(held, 0),), want=0)
        story.tell(Tick(), after=30.0)
        story.call("v", live=(LiveAttempt(held, 0),), want=0)
        story.attempt(fails=True)
    assert story.state.stopping is None


@pytest.mark.parametrize(("adoption", "remembers"), [(Adoption.ROSTER, True), (Adoption.NONE, False)])
def test_a_restarted_coordinator_remembers_and_a_resume_begins_anew(adoption: Adoption, remembers: bool) -> None:
    recent = (EndedAttempt("a", FailureKind.SANDBOX, "DOWN"),) * PAUSES_AT
    story = Story([case(n) for n in range(9)], policy=BOXED, epoch=2, adoption=adoption, recent=recent)
    story.tell(Roster(("w",)))
    story.call(want=0)
    assert bool(ordinals(story.call())) is not remembers
    assert ("a" in admission.paused(story.state)) is remembers
