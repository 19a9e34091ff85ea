"""`ration(state, report, now) → allotments`: the whole of governing, without I/O, clock or randomness.

`state` belongs to the caller and is advanced in place. Concurrency is moved between workers only once the one that
had it says that it uses less; calls and tokens per minute are credit, which is handed out once. So the limits hold at
every instant, whatever order reports come in.
"""

from __future__ import annotations

import math

from evalfleet.governor.buckets import Bucket
from evalfleet.governor.messages import AccountReport, Allotment, RateLimits, Throttle, WorkerReport
from evalfleet.governor.sharing import Sharer, shared, shared_whole
from evalfleet.governor.state import (
    FIRST_PAUSE,
    FORGET,
    HORIZON,
    LONG_WAIT,
    QUIET,
    RELEARN,
    SILENT,
    AccountState,
    GovernorState,
    WorkerShare,
)
from evalfleet.governor.window import Window
from evalfleet.model.model_call import RateReading

#: Seconds after which an indivisible rest of concurrency goes to the next one.
_TURN = 2.0


def ration(state: GovernorState, report: WorkerReport, now: float) -> tuple[Allotment, ...]:
    """Take in what a worker says of its accounts, and say what it may do with each until its next report."""
    allotments = tuple(_rationed(state, (report.run, report.worker), each, now) for each in report.accounts)
    for key in [key for key, account in state.accounts.items() if now - account.at > FORGET]:
        del state.accounts[key]
    return allotments


def _rationed(state: GovernorState, who: Sharer, report: AccountReport, now: float) -> Allotment:
    account = state.accounts.get(report.account)
    if account is None:
        account = state.accounts[report.account] = _met(state, report, now)
    account.at = now
    _bury(account, now)
    share = _taken_in(account, who, report, now)
    _follow_limits(account, now)
    _learn(account, report, now)
    _note_wants(account, share, report)
    if report.answered:
        account.rounds, account.answered_at = 0, now
    if report.throttle is not None:
        _throttled(account, report.throttle, now)
    elif now >= account.blocked_until:  # what is answered meanwhile was sent before, and tells nothing of after
        account.window.grow(report.answered, account.demand)
    _distribute(account)
    return _allotment(account, who, share, report, now)


def _met(state: GovernorState, report: AccountReport, now: float) -> AccountState:
    """An account that this governor has not heard of; when the worker has, an earlier governor allotted it."""
    account = AccountState(report.name, now)
    if report.allotted:
        account.relearning = now + RELEARN
        account.blocked_until = now + min(report.blocked, HORIZON)
        if report.concurrency is not None:
            account.window.size = 0.0
    return account


def _bury(account: AccountState, now: float) -> None:
    for who in [who for who, share in account.workers.items() if now - share.at > SILENT]:
        share = account.workers.pop(who)
        _give_back(account, share.credit_calls, share.credit_tokens)


def _taken_in(account: AccountState, who: Sharer, report: AccountReport, now: float) -> WorkerShare:
    share = account.workers.get(who)
    if share is None:
        share = account.workers[who] = WorkerShare(report.limits, now)
        if now < account.relearning and report.concurrency is not None:
            _relearn(account.window, report.concurrency, report.limits.concurrency)
    share.limits, share.at = report.limits, now
    share.in_flight, share.waiting = report.in_flight, report.waiting
    share.exposed = max(report.in_flight, report.concurrency or 0)
    _give_back(account, report.returned_calls, report.returned_tokens)
    return share


def _note_wants(account: AccountState, share: WorkerShare, report: AccountReport) -> None:
    """Nobody saves up more than a burst, or one call where that needs more: credit that lies about is used late."""
    calls, tokens = float(report.waiting), report.waiting_tokens
    if account.requests is not None:
        calls = min(calls, account.requests.capacity)
    if account.tokens is not None:
        tokens = min(tokens, max(account.tokens.capacity, tokens / max(1, report.waiting)))
    share.wants_calls = calls - report.calls
    share.wants_tokens = tokens - report.tokens


def _relearn(window: Window, concurrency: int, ceiling: int | None) -> None:
    """Add up what the workers were allotted; what it grows to soon is what somebody configured."""
    window.size = concurrency if window.size == math.inf else window.size + concurrency
    window.known = max(window.size, ceiling or 0)


def _give_back(account: AccountState, calls: float, tokens: float) -> None:
    if account.requests is not None:
        account.requests.give_back(calls)
    if account.tokens is not None:
        account.tokens.give_back(tokens)


def _follow_limits(account: AccountState, now: float) -> None:
    limits = account.limits
    account.window.ceiling = limits.concurrency
    # Another governor may have just handed out all there was.
    empty = now < account.relearning
    account.requests = _bucket(account.requests, limits.requests_per_minute, now, empty=empty)
    account.tokens = _bucket(account.tokens, limits.tokens_per_minute, now, empty=empty)


def _bucket(bucket: Bucket | None, per_minute: float | None, now: float, *, empty: bool) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute, 0.0, now) if empty else Bucket.full(per_minute, now)
    bucket.relimit(per_minute, now)
    return bucket


def _learn(account: AccountState, report: AccountReport, now: float) -> None:
    """Follow what headers say: the limits where nobody configured any, what is left, and until when nothing is."""
    reading = report.reading
    if reading is None:
        return
    learned = RateLimits(
        requests_per_minute=reading.requests_per_minute or account.learned.requests_per_minute,
        tokens_per_minute=reading.tokens_per_minute or account.learned.tokens_per_minute,
    )
    if learned != account.learned:
        account.learned = learned
        _follow_limits(account, now)
    if account.requests is not None and reading.requests_left is not None:
        account.requests.lower(reading.requests_left)
    if account.tokens is not None and reading.tokens_left is not None:
        account.tokens.lower(reading.tokens_left)
    account.blocked_until = max(account.blocked_until, now + min(exhausted_for(reading), HORIZON))


def exhausted_for(reading: RateReading) -> float:
    """Seconds for which nothing is left by a provider's headers; 0 when something is."""
    waits = [0.0]
    if reading.requests_left is not None and reading.requests_left < 1:
        waits.append(reading.requests_reset or 0.0)
    if reading.tokens_left is not None and reading.tokens_left < 1:
        waits.append(reading.tokens_reset or 0.0)
    return max(waits)


def _throttled(account: AccountState, throttle: Throttle, now: float) -> None:
    sent_at, in_use = now - throttle.age, account.in_use + throttle.calls
    wait = throttle.wait
    if wait is not None and wait > LONG_WAIT:
        account.window.restart(sent_at, in_use, now)
    elif account.window.cut(sent_at, in_use, now) and wait is None and now - account.answered_at > QUIET:
        wait = FIRST_PAUSE * 2**account.rounds
        account.rounds = min(account.rounds + 1, 10)
    if wait is not None:
        account.blocked_until = max(account.blocked_until, now + min(wait, HORIZON))


def _distribute(account: AccountState) -> None:
    """Hand the credit that has come to those who lack it."""
    for bucket, calls in ((account.requests, True), (account.tokens, False)):
        if bucket is None:
            continue
        bucket.refill(account.at)
        wants = {who: _lacks(share, calls=calls) for who, share in account.workers.items()}
        for who, credit in shared(bucket.level, wants).items():
            given, share = bucket.take(credit), account.workers[who]
            if calls:
                share.credit_calls += given
            else:
                share.credit_tokens += given


def _lacks(share: WorkerShare, *, calls: bool) -> float:
    lacks = share.wants_calls - share.credit_calls if calls else share.wants_tokens - share.credit_tokens
    return max(0.0, lacks)


def _allotment(account: AccountState, who: Sharer, share: WorkerShare, report: AccountReport, now: float) -> Allotment:
    blocked = max(0.0, account.blocked_until - now)
    limit, concurrency = account.window.limit, None
    if limit is not None and now < account.relearning:
        concurrency = report.concurrency or 0
    elif limit is not None:
        concurrency = 0 if blocked else _concurrency(account, who, limit, now)
    share.exposed = max(share.in_flight, concurrency or 0)
    calls = tokens = None
    if account.requests is not None:
        calls, share.credit_calls = share.credit_calls, 0.0
        share.wants_calls -= calls
    if account.tokens is not None:
        tokens, share.credit_tokens = share.credit_tokens, 0.0
        share.wants_tokens -= tokens
    part = 1 / (len({run for run, _ in account.workers}) * sum(1 for run, _ in account.workers if run == who[0]))
    limits = account.limits
    return Allotment(
        account=report.account,
        concurrency=concurrency,
        calls=calls,
        tokens=tokens,
        calls_per_second=0.0 if account.requests is None else account.requests.per_second * part,
        tokens_per_second=0.0 if account.tokens is None else account.tokens.per_second * part,
        blocked=blocked,
        limits=RateLimits(
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            concurrency=limit,
        ),
    )


def _concurrency(account: AccountState, who: Sharer, limit: int, now: float) -> int:
    """The worker's share, as far as nobody else may be using it still."""
    demands = {each: share.demand + _room(share.demand) for each, share in account.workers.items()}
    fair = shared_whole(limit, demands, int(now / _TURN))[who]
    free = limit - sum(share.exposed for each, share in account.workers.items() if each != who)
    return max(0, min(fair, free))


def _room(demand: int) -> int:
    """Calls that may come before the next report, as far as nobody else needs what they would take."""
    return 1 + demand // 4 if demand else 0
