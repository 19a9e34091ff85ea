"""The real clock and randomness, and the fakes that stand in for them."""

from __future__ import annotations

import time

from evalfleet.clock import SystemClock
from evalfleet.randomness import SystemRandom
from evalfleet.testing.fakes import FakeClock, FixedRandom


async def test_the_system_clock_tells_the_time() -> None:
    clock = SystemClock()
    assert abs(clock.wall() - time.time()) < 5
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert 0.005 < clock.monotonic() - before < 5


async def test_fake_time_passes_only_when_told() -> None:
    clock = FakeClock(wall=100.0, monotonic=5.0)
    await clock.sleep(2)
    clock.advance(3)
    assert (clock.wall(), clock.monotonic()) == (105.0, 10.0)
    clock.set_back(3600)
    assert (clock.wall(), clock.monotonic()) == (-3495.0, 10.0)


def test_system_randomness_stays_in_its_range_and_varies() -> None:
    random = SystemRandom()
    bits = {random.bits(50) for _ in range(20)}
    assert len(bits) > 1 and all(0 <= value < 1 << 50 for value in bits)
    assert all(1.0 <= random.uniform(1.0, 2.0) <= 2.0 for _ in range(100))


def test_fixed_randomness_repeats() -> None:
    random = FixedRandom([5, 300])
    assert [random.bits(8) for _ in range(3)] == [5, 300 & 255, 5]
    assert random.uniform(1, 3) == 2
