"""The window of calls at once: what makes it grow and fall."""

from __future__ import annotations

import math

import pytest

from evalfleet.governor.window import Window


def at(size: float, **more: float) -> Window:
    return Window(size=size, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("window", "answered", "in_use", "size"),
    [
        (at(math.inf), 50, 500, math.inf),
        (at(4, known=40), 4, 4, 8),  # doubles in a round trip
        (at(32, known=40), 32, 32, 40),  # up to what is known to go well
        (at(40, known=40, peak=100), 40, 40, 42),  # 5 % a round trip
        (at(95, known=85, peak=100), 95, 95, 96.9),  # 2 % near the last refusal
        (at(3, known=1), 3, 3, 4),  # one call at least
        (at(40, known=40, peak=100), 40, 20, 40),  # most of it was not used
        (at(40, known=40, peak=100), 0, 40, 40),
        (at(40, known=40, ceiling=40), 40, 400, 40),
    ],
)
def test_growth(window: Window, answered: int, in_use: int, size: float) -> None:
    window.grow(answered, in_use)
    assert window.size == pytest.approx(size)


def test_a_refusal_cuts_what_was_in_use_once_a_round_trip() -> None:
    window = Window()
    assert window.limit is None
    assert window.cut(sent_at=1.0, in_use=100, now=2.0)
    assert window.limit == 85
    assert not window.cut(sent_at=1.9, in_use=100, now=2.5)  # sent before the cut
    assert window.limit == 85
    assert window.cut(sent_at=2.1, in_use=85, now=3.0)
    assert window.limit == 72


def test_it_never_falls_below_one_call() -> None:
    window = at(1.0)
    for now in range(10):
        window.cut(sent_at=now, in_use=1, now=now)
    assert window.limit == 1


def test_a_configured_limit_is_used_at_once_and_never_exceeded() -> None:
    window = Window(ceiling=100)
    assert window.limit == 100
    window.grow(1000, 1000)
    assert window.limit == 100


def test_after_a_long_wait_it_goes_on_from_the_floor_and_finds_back() -> None:
    window = at(100.0)
    window.restart(sent_at=0.0, in_use=100, now=1.0)
    assert (window.limit, window.known) == (1, 85.0)
    window.restart(sent_at=90.0, in_use=1, now=91.0)  # refused again on the way up
    assert (window.limit, window.known) == (1, 85.0)
    rounds = 0
    while (limit := window.limit or 0) < 85:
        window.grow(limit, limit)
        rounds += 1
    assert rounds == 7
