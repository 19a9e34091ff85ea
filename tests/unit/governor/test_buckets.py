"""Token buckets: what they hand out, and that it is never more than the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.governor.buckets import Bucket


@pytest.mark.parametrize(
    ("per_minute", "after", "asked", "given_"),
    [
        (3000.0, 0.0, 20.0, 20.0),
        (3000.0, 0.0, 80.0, 50.0),  # a second's worth
        (3000.0, 60.0, 80.0, 50.0),  # which is all that is saved up
        (10.0, 0.0, 5.0, 1.0),
        (1.0, 0.0, 5.0, 1.0),
        (2_000_000.0, 0.0, 1e9, 2_000_000 / 60),
    ],
)
def test_a_full_bucket_gives(per_minute: float, after: float, asked: float, given_: float) -> None:
    bucket = Bucket.full(per_minute, 0.0)
    bucket.refill(after)
    assert bucket.take(asked) == pytest.approx(given_)


def test_an_empty_one_fills_with_time_and_not_when_the_clock_steps_back() -> None:
    bucket = Bucket(600.0, 0.0, 100.0)
    bucket.refill(90.0)
    assert bucket.take(10.0) == 0.0
    bucket.refill(100.5)
    assert bucket.take(10.0) == pytest.approx(0.5 * bucket.per_second)


def test_what_is_given_back_or_said_to_be_left_never_makes_it_fuller_than_full() -> None:
    bucket = Bucket.full(600.0, 0.0)
    bucket.give_back(100.0)
    assert bucket.level == bucket.capacity == 10.0
    bucket.lower(3.0)
    bucket.lower(7.0)
    assert bucket.level == 3.0


def test_another_limit_keeps_what_was_saved_as_far_as_it_may() -> None:
    bucket = Bucket.full(600.0, 0.0)
    bucket.relimit(60.0, 0.0)
    assert bucket.level == 1.0


@given(
    st.floats(2, 1e6),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1e5)), min_size=1, max_size=80),
)
def test_no_sixty_seconds_give_more_than_the_limit(per_minute: float, steps: list[tuple[float, float]]) -> None:
    bucket, now, given_ = Bucket.full(per_minute, 0.0), 0.0, []
    for wait, asked in steps:
        now += wait
        bucket.refill(now)
        given_.append((now, bucket.take(asked)))
    for at, _ in given_:
        assert sum(much for when, much in given_ if at <= when < at + 60) <= per_minute * (1 + 1e-9)
