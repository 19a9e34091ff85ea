"""What the tests of a task folder decided: a number in [0, 1], read strictly from what they wrote. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

#: The number that counts, among those that a `reward.json` may hold.
REWARD = "reward"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class RewardFault(ValueError):
    """The tests left no reward that can be read. `code` says whether there is none, or one that is none."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward, in [0, 1], and other numbers that stood beside it, which may be any finite ones."""

    value: float
    others: Mapping[str, float] = field(default_factory=dict[str, float])

    def as_json(self) -> dict[str, Any]:
        return {"value": self.value, "others": dict(self.others)}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Reward:
        return cls(document["value"], document["others"])

    def misses(self, thresholds: Mapping[str, float]) -> str | None:
        """The first number that is below its threshold or missing, as text; None when all reach theirs."""
        for name, threshold in thresholds.items():
            number = self.value if name == REWARD else self.others.get(name)
            if number is None or number < threshold:
                return f"{name} is {'missing' if number is None else f'{number:g}'}, below {threshold:g}"
        return None


def read_reward(as_json: bytes | None, as_text: bytes | None) -> Reward:
    """The reward of the contents of `reward.json` and `reward.txt`, None for a file that is not there.

    The JSON file goes before the other one, which is asked for a reward that the first has not got; where there is no
    other one, a single number is the reward whatever its name. Raises RewardFault.
    """
    if as_json is None and as_text is None:
        raise RewardFault("REWARD_MISSING", "the tests wrote neither reward.json nor reward.txt")
    if as_json is None:
        return Reward(_within(_number(as_text or b"")))
    numbers = _numbers(as_json)
    if REWARD in numbers:
        value = numbers.pop(REWARD)
    elif as_text is not None:
        value = _number(as_text)
    elif len(numbers) == 1:
        value = next(iter(numbers.values()))
    else:
        raise RewardFault("REWARD_INVALID", f"reward.json has no number called {REWARD!r}")
    return Reward(_within(value), numbers)


def combined(rewards: Sequence[Reward], *, final: bool) -> float:
    """The reward of all steps that were judged: their mean, or the last one's."""
    return rewards[-1].value if final else math.fsum(reward.value for reward in rewards) / len(rewards)


def _within(value: float) -> float:
    if not 0 <= value <= 1:
        raise RewardFault("REWARD_INVALID", f"the reward {value:g} is not between 0 and 1")
    return value


def _number(text: bytes) -> float:
    written = text.decode("utf-8-sig", "replace").strip()
    if not _NUMBER.fullmatch(written):
        raise RewardFault("REWARD_INVALID", f"reward.txt holds no number but {written[:40]!r}")
    return float(written)


def _numbers(data: bytes) -> dict[str, float]:
    try:
        document = json.loads(data, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise RewardFault("REWARD_INVALID", "reward.json holds no JSON, or a key twice") from None
    if not isinstance(document, dict):
        raise RewardFault("REWARD_INVALID", "reward.json holds no object of numbers")
    found: dict[str, float] = {}
    for name, value in cast("dict[str, Any]", document).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if not -1e308 < value < 1e308:
            raise RewardFault("REWARD_INVALID", f"reward.json holds a number {name[:40]!r} that is not finite")
        found[name] = float(value)
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return found
