"""What tests may write as their reward, and what is none: never 0 by mistake."""

from __future__ import annotations

import pytest

from evalfleet.harbor.reward import Reward, RewardFault, combined, read_reward

READ: dict[str, tuple[bytes | None, bytes | None, Reward]] = {
    "one": (None, b"1\n", Reward(1.0)),
    "zero": (None, b"0", Reward(0.0)),
    "a fraction with spaces": (None, b" 0.25 \n", Reward(0.25)),
    "a line end of Windows": (None, b"1\r\n", Reward(1.0)),
    "a fraction that is none": (None, b" 1.0 ", Reward(1.0)),
    "a byte-order mark": (None, b"\xef\xbb\xbf1", Reward(1.0)),
    "a byte-order mark before an object": (b'\xef\xbb\xbf{"reward": 1}', None, Reward(1.0)),
    "an exponent": (None, b"5e-1", Reward(0.5)),
    "an object": (b'{"reward": 0.5}', None, Reward(0.5)),
    "an object goes before a text": (b'{"reward": 1}', b"0", Reward(1.0)),
    "other numbers stand beside it": (
        b'{"reward": 1, "lines": 7, "why": "x", "ok": true}', None, Reward(1.0, {"lines": 7.0})
    ),
    "a text for an object without one": (
        b'{"lines": 7, "style": 0.5}', b"1", Reward(1.0, {"lines": 7.0, "style": 0.5})
    ),
    "a single number of another name": (b'{"accuracy": 0.75}', None, Reward(0.75, {"accuracy": 0.75})),
}  # fmt: skip
FAULTS: dict[str, tuple[bytes | None, bytes | None, str]] = {
    "nothing": (None, None, "REWARD_MISSING"),
    "an empty text": (None, b"", "REWARD_INVALID"),
    "words": (None, b"passed", "REWARD_INVALID"),
    "nan": (None, b"nan", "REWARD_INVALID"),
    "infinity": (None, b"inf", "REWARD_INVALID"),
    "two numbers": (None, b"1\n0\n", "REWARD_INVALID"),
    "digits with an underscore": (None, b"0_1", "REWARD_INVALID"),
    "bytes": (None, b"\xff\xfe1", "REWARD_INVALID"),
    "above one": (None, b"1.01", "REWARD_INVALID"),
    "below zero": (None, b"-0.5", "REWARD_INVALID"),
    "far above": (None, b"1e999", "REWARD_INVALID"),
    "no JSON": (b"{", b"1", "REWARD_INVALID"),
    "a number alone": (b"1", None, "REWARD_INVALID"),
    "NaN in JSON": (b'{"reward": NaN}', None, "REWARD_INVALID"),
    "infinity in JSON": (b'{"reward": 1e999}', None, "REWARD_INVALID"),
    "a key twice": (b'{"reward": 0, "reward": 1}', None, "REWARD_INVALID"),
    "a Boolean": (b'{"reward": true}', None, "REWARD_INVALID"),
    "a text in JSON": (b'{"reward": "1"}', None, "REWARD_INVALID"),
    "two numbers of other names": (b'{"a": 1, "b": 0}', None, "REWARD_INVALID"),
    "a huge integer": (b'{"reward": ' + b"9" * 400 + b"}", None, "REWARD_INVALID"),
    "out of range in JSON": (b'{"reward": 2}', None, "REWARD_INVALID"),
    "far too deep": (b"[" * 100_000, None, "REWARD_INVALID"),
}


@pytest.mark.parametrize("name", READ)
def test_a_reward_is_read(name: str) -> None:
    as_json, as_text, expected = READ[name]
    assert read_reward(as_json, as_text) == expected


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_reward_is_told_by_its_code(name: str) -> None:
    as_json, as_text, code = FAULTS[name]
    with pytest.raises(RewardFault) as raised:
        read_reward(as_json, as_text)
    assert raised.value.code == code


@pytest.mark.parametrize(("final", "expected"), [(False, 0.5), (True, 0.25)])
def test_the_reward_of_several_steps(final: bool, expected: float) -> None:
    assert combined([Reward(1.0), Reward(0.25), Reward(0.25)][:3], final=final) == expected


def test_three_full_rewards_are_a_full_one() -> None:
    assert combined([Reward(1.0)] * 3, final=False) == 1.0


@pytest.mark.parametrize(
    ("thresholds", "missed"),
    [
        ({"reward": 0.5}, None),
        ({"reward": 0.75}, "reward is 0.5, below 0.75"),
        ({"reward": 0.5, "style": 0.25}, None),
        ({"style": 0.5}, "style is 0.25, below 0.5"),
        ({"speed": 0.0}, "speed is missing, below 0"),
    ],
)
def test_what_a_reward_has_to_reach(thresholds: dict[str, float], missed: str | None) -> None:
    assert Reward(0.5, {"style": 0.25}).misses(thresholds) == missed
