"""The purse of one attempt, before its governor: a call is made once it is certain that it can be paid."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.allowance import Allowance
from evalfleet.model.model_call import CallEnd, CallFate, ModelCall
from evalfleet.model.money import Money, Spending
from evalfleet.model.usage import Usage
from evalfleet.ports import AdmittedCall, Clock, Governor

#: Seconds between two looks for a lane, where no governor says when one is free.
LOOKS = 0.05

_NOT_MADE = CallEnd(fate=CallFate.REFUSED)

#: The US dollars of a usage of a model; None when they can't be known.
Price = Callable[[str | None, Usage], float | None]


@dataclass(slots=True, eq=False)
class _Waiter:
    most: Money
    turn: asyncio.Future[None]


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class AttemptPurse:
    """What one attempt may spend, as its calls see it.

    `ask` tells the coordinator what it must be allowed to spend in all, None when it lacks nothing any more; without
    it nobody can be asked. `dollars` says that dollars are limited, not only tokens.
    """

    allowance: Allowance
    price: Price | None
    dollars: bool
    ask: Callable[[Money | None], None] | None
    waiters: deque[_Waiter] = field(default_factory=deque[_Waiter])

    def most(self, call: ModelCall) -> Money:
        """What a call may cost at most. Raises AttemptFailure when nothing bounds that."""
        if call.output_limit is None:
            raise _refusal("the answer of a model call has no limit, so what it costs has none: set `max_tokens`")
        tokens = Money(0, call.input_bytes + call.output_limit)
        if not self.dollars:
            return tokens
        output = call.output_limit
        usages = (
            Usage(input_tokens=call.input_bytes, output_tokens=output),
            Usage(input_tokens=0, output_tokens=output, cache_write_tokens=call.input_bytes),
        )
        prices = [None if self.price is None else self.price(call.account.model, usage) for usage in usages]
        known = [price for price in prices if price is not None]
        if prices[0] is None:
            raise _refusal(f"nobody knows what the model {call.account.model!r} costs: add it to `prices`")
        return Money.of(max(known), tokens.tokens)

    def cost(self, call: ModelCall, end: CallEnd) -> Money | None:
        """What a call has cost; None when nobody knows."""
        if end.fate in (CallFate.THROTTLED, CallFate.REFUSED):
            return Money()
        usage = end.usage
        if end.fate is not CallFate.ANSWERED or usage is None or usage.total_tokens is None or usage.unknown_calls:
            return None
        tokens = usage.total_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
        if not self.dollars:
            return Money(0, tokens)
        usd = usage.cost_usd
        if usd is None and self.price is not None:
            usd = self.price(call.account.model, usage)
        return None if usd is None else Money.of(usd, tokens)

    def at_once(self, call: ModelCall) -> _Paid | None:
        """The call when there is money for it, and nobody waits for some."""
        most = self.most(call)
        return _Paid(self, call, most) if not self.waiters and self.allowance.hold(most) else None

    async def paid(self, call: ModelCall) -> _Paid:
        """Wait until there is money for the call."""
        most = self.most(call)
        if self.waiters or not self.allowance.hold(most):
            await self._wait(most)
        return _Paid(self, call, most)

    async def _wait(self, most: Money) -> None:
        if self.ask is None:
            raise _refusal("the attempt has spent what it was allowed to, and can ask for no more in a process apart")
        waiter = _Waiter(most, asyncio.get_running_loop().create_future())
        self.waiters.append(waiter)
        self._ask()
        try:
            await waiter.turn
        except BaseException:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self.allowance.end(most, Money())
            else:
                self.waiters.remove(waiter)
                self._ask()
            raise

    def _ask(self) -> None:
        if self.ask is not None:
            self.ask(self.allowance.needs(self.waiters[0].most) if self.waiters else None)

    def raised(self, total: Money) -> None:
        """The attempt may spend so much in all."""
        self.allowance.raised(total)
        self.go_on()

    def go_on(self) -> None:
        """Let those that waited make their calls, as far as there is money for them."""
        if not self.waiters:
            return
        while self.waiters and self.allowance.hold(self.waiters[0].most):
            self.waiters.popleft().turn.set_result(None)
        self._ask()

    def spending(self, unseen: Money | None) -> Spending:
        """See `Allowance.spending`."""
        return self.allowance.spending(unseen)


class _Paid:
    """A call that is paid for until it ends."""

    __slots__ = ("_call", "_most", "_purse")

    def __init__(self, purse: AttemptPurse, call: ModelCall, most: Money) -> None:
        self._purse: AttemptPurse | None = purse
        self._call = call
        self._most = most

    def end(self, end: CallEnd) -> None:
        """See `AdmittedCall.end`."""
        purse, self._purse = self._purse, None
        if purse is not None:
            purse.allowance.end(self._most, purse.cost(self._call, end))
            purse.go_on()


class _Both:
    __slots__ = ("_admitted", "_paid")

    def __init__(self, paid: _Paid, admitted: AdmittedCall) -> None:
        self._paid = paid
        self._admitted = admitted

    def end(self, end: CallEnd) -> None:
        self._admitted.end(end)
        self._paid.end(end)


class PaidCalls:
    """A `Governor` of one attempt's calls: its purse, then the worker's governor if there is one."""

    __slots__ = ("_clock", "_inner", "_purse")

    def __init__(self, purse: AttemptPurse, inner: Governor | None, clock: Clock) -> None:
        self._purse = purse
        self._inner = inner
        self._clock = clock

    @property
    def trouble(self) -> str | None:
        """See `Governor.trouble`."""
        return getattr(self._inner, "trouble", None)

    def at_once(self, call: ModelCall) -> AdmittedCall | None:
        """See `Governor.at_once`."""
        paid = self._purse.at_once(call)
        if paid is None or self._inner is None:
            return paid
        admitted = self._inner.at_once(call)
        if admitted is None:
            paid.end(_NOT_MADE)
            return None
        return _Both(paid, admitted)

    async def admit(self, call: ModelCall, ready: Callable[[], bool]) -> AdmittedCall:
        """See `Governor.admit`."""
        paid = await self._purse.paid(call)
        try:
            if self._inner is not None:
                return _Both(paid, await self._inner.admit(call, ready))
            while not ready():
                await self._clock.sleep(LOOKS)
            return paid
        except BaseException:
            paid.end(_NOT_MADE)
            raise


def _refusal(why: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.AUTHORING, "BUDGET_NOT_COVERED", f"the run has a hard budget: {why}")
