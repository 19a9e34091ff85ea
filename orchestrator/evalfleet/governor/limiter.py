"""One account as one worker uses it, within what the governor allotted. Pure: the shell in `local` waits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evalfleet.governor.messages import AccountReport, Allotment, RateLimits, Throttle
from evalfleet.governor.meter import Meter
from evalfleet.governor.ration import exhausted_for
from evalfleet.governor.state import FIRST_PAUSE, HORIZON
from evalfleet.model.model_call import AccountUse, CallEnd, CallFate, ModelCall, RateReading
from evalfleet.model.usage import Usage

#: Tokens that an answer is taken to have at most when its call does not say.
_USUAL_ANSWER = 1000
#: The part of its limit that an answer is taken to use, until some were seen.
_FIRST_SHARE = 0.25
_BYTES_A_TOKEN = 4
#: How many calls back the usual size of one looks.
_SMOOTHING = 16
#: What is kept of the requests in flight at a refusal by an account that has no allotment yet.
_FIRST_CUT = 0.85
#: Seconds without a word from the governor after which a worker lives on what it may count on.
_ON_ITS_OWN = 1.0


@dataclass(frozen=True, slots=True)
class Started:
    """A call under way: when it was sent, and the tokens that were set aside for it."""

    call: ModelCall
    sent_at: float
    tokens: float


@dataclass(slots=True)
class LocalAccount:
    """What a worker knows of an account. Times are on its monotonic clock.

    An account becomes `active` by a configured limit, a refusal for the rate or a header that says nothing is left;
    before that nobody counts and nothing is reported. `concurrency`, `calls` and `tokens` are what is allotted, None
    without a limit; the latter two fall below 0 when a call used more than it was taken to. Nothing is sent while the
    governor's word on a refusal is awaited (`unheard`).
    """

    key: str
    name: str
    limits: RateLimits
    active: bool = False
    allotted: bool = False
    concurrency: int | None = None
    calls: float | None = None
    tokens: float | None = None
    blocked_until: float = 0.0
    in_flight: int = 0
    word: Allotment | None = None
    word_at: float = 0.0
    answered: int = 0
    judging: int = 0
    throttle: Throttle | None = None
    throttled_at: float = 0.0
    unheard: bool = False
    reading: RateReading | None = None
    extra: float | None = None
    call_meter: Meter = field(default_factory=Meter)
    token_meter: Meter = field(default_factory=Meter)
    judge_meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self.active = bool(self.limits)

    def estimate(self, call: ModelCall) -> float:
        """The tokens that a call is taken to use: those of its request, and what the others used beyond theirs."""
        extra = self.extra
        if extra is None:
            extra = (call.output_limit or _USUAL_ANSWER) * _FIRST_SHARE
        return max(1.0, call.input_bytes / _BYTES_A_TOKEN + extra)

    def may_start(self, tokens: float, now: float) -> bool:
        """Whether a call that is taken to use so many tokens may be sent now."""
        if not self.active:
            return True
        if now < self.blocked_until or self.unheard or (self.limits and not self.allotted):
            return False
        if self.concurrency is not None and self.in_flight >= self.concurrency:
            return False
        return (self.calls is None or self.calls >= 1) and (self.tokens is None or self.tokens >= tokens)

    def start(self, call: ModelCall, tokens: float, now: float) -> Started:
        """Count a call that is sent now."""
        self.in_flight += 1
        if self.calls is not None:
            self.calls -= 1
        if self.tokens is not None:
            self.tokens -= tokens
        return Started(call, now, tokens)

    def end(self, started: Started, end: CallEnd, now: float) -> bool:
        """Take in how a call ended; whether the governor has to hear of it at once."""
        self.in_flight -= 1
        used = _used(end.usage)
        if self.tokens is not None and (used is not None or end.fate is not CallFate.ANSWERED):
            self.tokens += started.tokens - (used or 0.0)
        if end.fate is CallFate.ANSWERED:
            self._answered(started, used, now)
        urgent = end.reading is not None and self._read(end.reading, now)
        if end.fate is CallFate.THROTTLED:
            self._throttled(started, end.retry_after, now)
            urgent = True
        return urgent

    def _answered(self, started: Started, used: float | None, now: float) -> None:
        self.answered += 1
        self.call_meter.add(1.0, now)
        if started.call.judging:
            self.judging += 1
            self.judge_meter.add(1.0, now)
        if used is None:
            return
        self.token_meter.add(used, now)
        extra = max(0.0, used - started.call.input_bytes / _BYTES_A_TOKEN)
        self.extra = extra if self.extra is None else self.extra + (extra - self.extra) / _SMOOTHING

    def _read(self, reading: RateReading, now: float) -> bool:
        """Keep what headers said; whether they say that nothing is left."""
        self.reading = reading
        wait = exhausted_for(reading)
        if wait <= 0:
            return False
        self.active = True
        self.blocked_until = max(self.blocked_until, now + min(wait, HORIZON))
        return True

    def _throttled(self, started: Started, wait: float | None, now: float) -> None:
        if not self.active:
            self.active = True
            self.concurrency = max(1, int(self.in_flight * _FIRST_CUT))
        self.unheard = True
        before, since = self.throttle, now - self.throttled_at
        if before is None:
            self.throttle = Throttle(calls=1, age=now - started.sent_at, wait=wait)
        else:
            waits = [each for each in (wait, None if before.wait is None else before.wait - since) if each is not None]
            age = min(before.age + since, now - started.sent_at)
            self.throttle = Throttle(calls=before.calls + 1, age=age, wait=max(waits, default=None))
        self.throttled_at = now
        if wait is not None:
            self.blocked_until = max(self.blocked_until, now + min(wait, HORIZON))

    # --- the governor -----------------------------------------------------------------------------------------

    def report(self, waiting: int, waiting_tokens: float, now: float) -> AccountReport:
        """What the governor is told now. It is counted as told: `untold` takes that back."""
        throttle = self.throttle
        if throttle is not None:
            since = now - self.throttled_at
            left = None if throttle.wait is None else max(0.0, throttle.wait - since)
            throttle = replace(throttle, age=throttle.age + since, wait=left)
        spare_calls = max(0.0, self.calls or 0.0) if not waiting else 0.0
        spare_tokens = max(0.0, self.tokens or 0.0) if not waiting else 0.0
        report = AccountReport(
            account=self.key,
            name=self.name,
            limits=self.limits,
            allotted=self.allotted,
            in_flight=self.in_flight,
            waiting=waiting,
            waiting_tokens=waiting_tokens,
            concurrency=self.concurrency if self.allotted else None,
            blocked=max(0.0, self.blocked_until - now),
            calls=(self.calls or 0.0) - spare_calls,
            tokens=(self.tokens or 0.0) - spare_tokens,
            returned_calls=spare_calls,
            returned_tokens=spare_tokens,
            answered=self.answered,
            judging=self.judging,
            throttle=throttle,
            reading=self.reading,
        )
        self.calls = None if self.calls is None else self.calls - spare_calls
        self.tokens = None if self.tokens is None else self.tokens - spare_tokens
        self.answered = self.judging = 0
        self.throttle = self.reading = None
        return report

    def untold(self, report: AccountReport, now: float) -> None:
        """The governor did not answer: what was told is to be told again, and what was allotted stays.

        Where calls or tokens are counted the worker goes on with what it may count on, as long as nobody else says.
        """
        if self.unheard:
            self.unheard = False
            self.blocked_until = max(self.blocked_until, now + FIRST_PAUSE)
        self.answered += report.answered
        self.judging += report.judging
        self.reading = self.reading or report.reading
        if self.throttle is None and report.throttle is not None:
            self.throttle, self.throttled_at = report.throttle, now
        alone = 0.0 if self.word is None else now - self.word_at - _ON_ITS_OWN
        more_calls = more_tokens = 0.0
        if self.word is not None and alone > 0:
            self.word_at += alone
            more_calls, more_tokens = alone * self.word.calls_per_second, alone * self.word.tokens_per_second
        if self.calls is not None:
            self.calls += report.returned_calls + more_calls
        if self.tokens is not None:
            self.tokens += report.returned_tokens + more_tokens

    def take_in(self, allotment: Allotment, now: float) -> None:
        """What the governor says, which holds until its next word."""
        self.allotted, self.word, self.word_at = True, allotment, now
        self.concurrency = allotment.concurrency
        self.calls = None if allotment.calls is None else (self.calls or 0.0) + allotment.calls
        self.tokens = None if allotment.tokens is None else (self.tokens or 0.0) + allotment.tokens
        told = now + allotment.blocked
        # A refusal that it does not know of yet counts beside its word.
        self.unheard = self.throttle is not None
        self.blocked_until = told if self.throttle is None else max(told, self.blocked_until)

    def use(self, waiting: int, now: float) -> AccountUse:
        """What is shown of this worker's use of the account."""
        known = self.limits if self.word is None else self.word.limits
        return AccountUse(
            account=self.key,
            name=self.name,
            in_flight=self.in_flight,
            waiting=waiting,
            calls_per_minute=self.call_meter.per_minute(now),
            judge_calls_per_minute=self.judge_meter.per_minute(now),
            tokens_per_minute=self.token_meter.per_minute(now),
            blocked=max(0.0, self.blocked_until - now),
            concurrency=known.concurrency,
            requests_limit=known.requests_per_minute,
            tokens_limit=known.tokens_per_minute,
        )


def _used(usage: Usage | None) -> float | None:
    """The tokens that a provider counts for a call; None when nobody told."""
    if usage is None or usage.input_tokens is None:
        return None
    more = (usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    return float(usage.input_tokens + sum(each or 0 for each in more))
