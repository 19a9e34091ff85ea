"""`python -m evalfleet.testing.rated_endpoint OPTIONS`: a local model whose provider keeps a rate, in its own process.

OPTIONS is a JSON object with the fields of `ProviderRate`. The first line of standard output is the port. Chat
completions that exceed the rate are answered with 429; `GET /tally` gives the `Tally` as JSON, `POST /storm` with
`{"seconds": …, "calls": …, "retry_after": …}` has every call refused for that time, or that many.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from evalfleet.clock import SystemClock
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRate:
    """What the provider allows: calls at once, and calls in any `minute` seconds. Each takes `seconds`.

    With `headers` it says so; with `retry_after` a refusal names that wait, in seconds.
    """

    concurrency: int = 100
    requests_per_minute: float = 3000
    minute: float = 60.0
    seconds: float = 1.0
    headers: bool = True
    retry_after: float | None = None


@dataclass(slots=True)
class Tally:
    """What the provider saw. `by_asker` counts the calls that were let through by the first letter of what they ask,
    `seconds` those let through and refused in each second since the first; `most` is the most under way at once."""

    answered: int = 0
    refused: int = 0
    most: int = 0
    by_asker: dict[str, int] = field(default_factory=dict[str, int])
    seconds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


class RatedProvider:
    """Decides each call by what it has let through."""

    def __init__(self, rate: ProviderRate) -> None:
        self._rate = rate
        self._clock = SystemClock()
        self._recent: deque[float] = deque()
        self._under_way = 0
        self._began: float | None = None
        self._storm: tuple[float, int, float | None] = (0.0, 0, None)
        self.tally = Tally()

    async def answer(self, request: Request) -> Reply:
        """The reply to one request."""
        now = self._clock.monotonic()
        if request.target == "/tally":
            return json_reply(asdict(self.tally))
        if request.target == "/storm":
            told = request.json
            self._storm = (now + told["seconds"], told["calls"], told["retry_after"])
            return json_reply({})
        refused = self._refused(now)
        self._count(now, refused=refused is not None)
        if refused is not None:
            return refused
        self._recent.append(now)
        asker = request.json["messages"][-1]["content"][:1]
        self.tally.by_asker[asker] = self.tally.by_asker.get(asker, 0) + 1
        self._under_way += 1
        self.tally.most = max(self.tally.most, self._under_way)
        try:
            await self._clock.sleep(self._rate.seconds)
        finally:
            self._under_way -= 1
        return json_reply(_completion(), headers=self._headers(now))

    def _refused(self, now: float) -> Reply | None:
        until, calls, retry_after = self._storm
        if now < until or calls > 0:
            self._storm = (until, calls - 1, retry_after)
            return self._refusal(now, retry_after)
        while self._recent and now - self._recent[0] >= self._rate.minute:
            self._recent.popleft()
        full = len(self._recent) >= self._rate.requests_per_minute or self._under_way >= self._rate.concurrency
        return self._refusal(now, self._rate.retry_after) if full else None

    def _refusal(self, now: float, retry_after: float | None) -> Reply:
        headers = self._headers(now) | ({} if retry_after is None else {"retry-after": f"{retry_after:g}"})
        return json_reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429, headers)

    def _headers(self, now: float) -> dict[str, str]:
        if not self._rate.headers:
            return {}
        left = max(0, int(self._rate.requests_per_minute) - len(self._recent))
        reset = self._rate.minute - (now - self._recent[0]) if self._recent and not left else 0.0
        return {
            "x-ratelimit-limit-requests": f"{self._rate.requests_per_minute * 60 / self._rate.minute:g}",
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{max(0.0, reset):.3f}s",
        }

    def _count(self, now: float, *, refused: bool) -> None:
        self._began = now if self._began is None else self._began
        second, seconds = int(now - self._began), self.tally.seconds
        seconds.extend((0, 0) for _ in range(second + 1 - len(seconds)))
        answered, turned_away = seconds[second]
        seconds[second] = (answered + (not refused), turned_away + refused)
        self.tally.answered += not refused
        self.tally.refused += refused


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": "ok"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


async def _serve(rate: ProviderRate) -> None:
    async with HttpEndpoint(RatedProvider(rate).answer, keep=False) as endpoint:
        sys.stdout.write(endpoint.url.rpartition(":")[2] + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(ProviderRate(**json.loads(sys.argv[1]))))
