"""The pace of sandbox starts: never above its rate, and as many under way as a backend takes well."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence

import pytest

from evalfleet.scheduling.pace import FIRST_ROOM, PATIENCE, Pace

TICK = 0.1


def starts(pace: Pace, begin: float, seconds: float, *, made: bool = True) -> list[float]:
    """When sandboxes start that nothing else holds back, each there at once if it is `made`."""
    found: list[float] = []
    for step in range(round(seconds / TICK)):
        now = begin + step * TICK
        while pace.ready(now):
            pace.granted(len(found), now)
            if made:
                pace.made(len(found), 0.0, now)
            found.append(now)
    return found


@pytest.mark.parametrize("rate", [0.2, 1.0, 7.5, 100.0])
def test_no_time_has_more_starts_than_the_rate_and_one_bucket(rate: float) -> None:
    times = starts(Pace(rate, at=50.0), 50.0, 120.0)
    for span in (TICK, 1.0, 10.0, 60.0):
        most = max(bisect_left(times, first + span) - index for index, first in enumerate(times))
        assert most <= rate * span + max(1.0, rate)
    assert len(times) >= rate * 115


def test_a_bucket_begins_empty_and_keeps_no_more_than_a_second() -> None:
    pace = Pace(10.0, at=0.0)
    assert not pace.ready(0.0)
    assert starts(pace, 3600.0, TICK) == [3600.0] * 10


def test_asking_costs_nothing() -> None:
    pace = Pace(1.0, at=0.0)
    assert all(not pace.ready(step / 100) for step in range(100))
    assert pace.ready(1.0) and pace.ready(1.0)


def test_no_more_are_under_way_than_there_is_room_and_each_that_ends_makes_some() -> None:
    pace = Pace(100.0, at=0.0)
    assert len(starts(pace, 10.0, 1.0, made=False)) == FIRST_ROOM
    pace.gone(0)
    assert pace.ready(11.0)


def test_without_news_the_rate_alone_counts() -> None:
    assert len(starts(Pace(100.0, at=0.0, tells=False), 10.0, 1.0, made=False)) > 100
    pace = Pace(100.0, at=0.0)
    for attempt in range(50):
        assert pace.ready(10.0)
        pace.granted(attempt, 10.0, tells=False)


def waves(pace: Pace, seconds: float, count: int, begin: float) -> float:
    """Waves of starts, 40 s apart, that fill the room and take so long; when the next one would begin."""
    attempts = itertools.count()
    for _ in range(count):
        while pace.ready(begin):
            pace.granted(next(attempts), begin)
        for attempt in list(pace.under_way):
            pace.made(attempt, seconds, begin + seconds)
        begin += 40.0
    return begin


@pytest.mark.parametrize(("seconds", "grows"), [(0.2, True), (0.69, True), (0.71, False), (30.0, False)], ids=str)
def test_quick_starts_make_room_and_slow_ones_halve_it(seconds: float, grows: bool) -> None:
    pace = Pace(100.0, at=0.0, room=8, usual=0.1, ramping=False)
    waves(pace, seconds, 1, 100.0)
    assert pace.room == (9 if grows else 4)


def test_a_quick_start_says_nothing_about_room_that_was_not_used() -> None:
    pace = Pace(100.0, at=0.0)
    for attempt in range(40):
        assert pace.ready(100.0 + attempt)
        pace.granted(attempt, 100.0 + attempt)
        pace.made(attempt, 0.1, 100.5 + attempt)
    assert pace.room == FIRST_ROOM


def test_one_burst_of_failures_cuts_once_and_room_for_one_is_always_left() -> None:
    pace = Pace(100.0, at=0.0, room=32)
    for began in (58.0, 58.5, 59.0):
        pace.cut(began, 60.0)
    assert pace.room == 16
    for second in range(60, 100):
        pace.cut(float(second), float(second))
    assert pace.room == 1 and pace.ready(100.0)


def test_a_start_that_never_comes_back_is_not_waited_for_for_ever() -> None:
    pace = Pace(100.0, at=0.0)
    starts(pace, 10.0, 1.0, made=False)
    assert not pace.ready(10.0 + PATIENCE - 1)
    assert pace.ready(10.0 + PATIENCE + 1) and pace.room == FIRST_ROOM // 2


def test_a_backend_that_is_slower_for_good_is_not_slow_for_ever() -> None:
    pace = Pace(100.0, at=0.0)
    now = waves(pace, 0.1, 4, 10.0)
    assert pace.room > FIRST_ROOM
    now = waves(pace, 5.0, 10, now)
    assert pace.room <= 2
    waves(pace, 5.0, 20, now)
    assert pace.room > FIRST_ROOM


class Backend:
    """Makes sandboxes side by side: each in its own time up to `knee` at once; more share, and hinder each other."""

    def __init__(self, knee: int, seconds: Sequence[float]) -> None:
        self.knee = knee
        self._seconds = itertools.cycle(seconds)
        self._under_way: list[tuple[int, float, float]] = []

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def begin(self, attempt: int, now: float) -> None:
        self._under_way.append((attempt, now, next(self._seconds)))

    def work(self, now: float) -> list[tuple[int, float]]:
        """Go on for a tick; which sandboxes are there now, and how many seconds each took."""
        crowd = max(1.0, self.under_way / self.knee)
        done = TICK / crowd / (1 + 0.1 * (crowd - 1))
        left = [(attempt, began, work - done) for attempt, began, work in self._under_way]
        self._under_way = [each for each in left if each[2] > 1e-9]
        return [(attempt, now - began) for attempt, began, work in left if work <= 1e-9]


@pytest.mark.parametrize(
    ("knee", "seconds", "rate"),
    [(10, [1.0], 50.0), (4, [2.0], 20.0), (50, [0.5], 400.0), (2, [8.0], 9.0), (20, [0.5, 3.0, 1.0, 12.0, 1.0], 50.0)],
    ids=["quick", "few", "many", "slow", "mixed"],
)
def test_the_ramp_finds_the_knee_and_follows_it(knee: int, seconds: list[float], rate: float) -> None:
    """Demand without end: the backend is busy and never far beyond what it can do, whatever that is just now."""
    pace, backend, attempts = Pace(rate, at=0.0), Backend(knee, seconds), itertools.count()
    for phase in (knee, max(1, knee // 2), 2 * knee):
        backend.knee = phase
        made = most = 0
        begin = pace.at
        for step in range(3000):
            now = begin + step * TICK
            for attempt, took in backend.work(now):
                pace.made(attempt, took, now)
                made += step >= 1000
            while pace.ready(now):
                attempt = next(attempts)
                pace.granted(attempt, now)
                backend.begin(attempt, now)
            most = max(most, backend.under_way if step >= 1000 else 0)
        can = phase * len(seconds) / sum(seconds)
        assert made / 200 >= 0.7 * can
        assert most <= 4 * phase + 12
