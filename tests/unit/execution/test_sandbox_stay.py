"""One attempt's sandbox from its beginning to its end: what each part of that took."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.execution.sandbox_stay import SandboxStay
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.verdict import Verdict
from evalfleet.testing.fakes import FakeClock, FakeSandboxes

SPEC = SandboxSpec(image="python:3.12-slim")


class Slow(FakeSandboxes):
    """Takes 3 s to make a sandbox and 2 s to close it."""

    def __init__(self, clock: FakeClock, *, broken: bool = False) -> None:
        super().__init__()
        self._clock = clock
        self._broken = broken

    async def create(self, spec: SandboxSpec, owner: str) -> Any:
        self._clock.advance(3)
        if self._broken:
            raise OSError("no daemon")
        sandbox: Any = await super().create(spec, owner)
        sandbox.close = self._closed
        return sandbox

    async def _closed(self) -> None:
        self._clock.advance(2)


async def test_each_part_of_a_stay_is_timed() -> None:
    clock = FakeClock()
    stay = SandboxStay(Slow(clock), clock)
    await stay.begin(SPEC, "run/1")
    clock.advance(10)
    await stay.end()
    assert stay.use == SandboxUse(backend="fake", starts=1, making=3, using=10, closing=2)
    await stay.end()
    assert stay.use.closing == 2


async def test_one_that_could_not_be_made_took_its_time_all_the_same() -> None:
    clock = FakeClock()
    stay = SandboxStay(Slow(clock, broken=True), clock)
    with pytest.raises(OSError, match="no daemon"):
        await stay.begin(SPEC, "run/1")
    await stay.end()
    assert stay.use == SandboxUse(backend="fake", starts=0, making=3)


async def test_it_stands_in_the_attempts_summary(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.check(1, equals(1))

    clock = FakeClock()
    evidence = await attempt(body, sandbox=(Slow(clock), SPEC), using={"clock": clock})
    assert evidence.summary.verdict is Verdict.PASSED
    assert evidence.summary.sandbox == SandboxUse(backend="fake", starts=1, making=3, using=0, closing=2)
    assert (await attempt(body)).summary.sandbox is None
