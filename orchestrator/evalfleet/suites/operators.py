"""What each operator of a check says of a value, and which of its answers more evidence can't change. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, cast

from evalfleet.assertions.equality import first_difference
from evalfleet.assertions.json_match import json_match
from evalfleet.assertions.texts import compile_linear, searches
from evalfleet.errors import AuthoringError
from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.events import MISSING
from evalfleet.model.suite import CheckAssertion

#: Characters of a regular expression.
MAX_EXPRESSION = 1_000

_BOUNDS = ("equals", "gte", "lte")

Holds: TypeAlias = Callable[[Any, CheckAssertion], bool]
Stays: TypeAlias = Callable[[Any, CheckAssertion, bool], bool]
Fault: TypeAlias = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `holds` speaks of a value that is there.

    `stays` says whether its answer stays what it is when more evidence turns up: a list grows, a number rises, a text
    goes on. `fault` says what is wrong with the value of a check.
    """

    holds: Holds
    stays: Stays
    fault: Fault
    takes_value: bool = True


def holds(check: CheckAssertion, actual: Any) -> bool:
    """Whether the check holds for what stands at its path; MISSING is nothing, and never equal to anything."""
    if actual is MISSING:
        return check.operator == "absent"
    return OPERATORS[check.operator].holds(actual, check)


def stays(check: CheckAssertion, actual: Any, held: bool) -> bool:
    """Whether `held` stays so when evidence may be missing: a match that was found, or a counterexample."""
    return actual is not MISSING and OPERATORS[check.operator].stays(actual, check, held)


# --- answers ---------------------------------------------------------------------------------------------------


def _equals(actual: Any, check: CheckAssertion) -> bool:
    return first_difference(check.value, actual) is None


def _differs(actual: Any, check: CheckAssertion) -> bool:
    return not _equals(actual, check)


def _matches(actual: Any, check: CheckAssertion) -> bool:
    return json_match(check.value).quick(actual)


def _contains(actual: Any, check: CheckAssertion) -> bool:
    if isinstance(actual, str):
        return isinstance(check.value, str) and check.value in actual
    return isinstance(actual, list | tuple) and any(map(json_match(check.value).quick, cast("list[Any]", actual)))


def _length(actual: Any, check: CheckAssertion) -> bool:
    return isinstance(actual, list | tuple | str) and len(cast("list[Any]", actual)) == check.value


def _one_of(actual: Any, check: CheckAssertion) -> bool:
    return any(first_difference(choice, actual) is None for choice in check.value)


def _approx(actual: Any, check: CheckAssertion) -> bool:
    tolerance = Fraction(check.tolerance or 0)
    return _is_number(actual) and abs(Fraction(actual) - Fraction(check.value)) <= tolerance


def _set_equals(actual: Any, check: CheckAssertion) -> bool:
    return isinstance(actual, list | tuple) and _keys(actual) == _keys(check.value)


def _matches_regex(actual: Any, check: CheckAssertion) -> bool:
    return isinstance(actual, str) and searches(_compiled(check.value), actual)


def _count(actual: Any, check: CheckAssertion) -> bool:
    if not isinstance(actual, list | tuple):
        return False
    count, low, high = _counted(actual, check), *_bounds(check)
    return low <= count and (high is None or count <= high)


# --- which answers stay ----------------------------------------------------------------------------------------


def _found(_: Any, __: CheckAssertion, held: bool) -> bool:
    return held


def _found_whole(_: Any, check: CheckAssertion, held: bool) -> bool:
    """A list that is named whole says that there is nothing else in it."""
    return held and not _names_list(check.value)


def _counterexample_whole(_: Any, check: CheckAssertion, held: bool) -> bool:
    return not held and not _names_list(check.value)


def _exceeded(actual: Any, _: CheckAssertion, held: bool) -> bool:
    return not held and _is_number(actual)


def _longer(actual: Any, check: CheckAssertion, held: bool) -> bool:
    return not held and isinstance(actual, list | tuple | str) and len(cast("list[Any]", actual)) > check.value


def _has_another(actual: Any, check: CheckAssertion, held: bool) -> bool:
    return not held and isinstance(actual, list | tuple) and not _keys(actual) <= _keys(check.value)


def _counted_enough(actual: Any, check: CheckAssertion, held: bool) -> bool:
    if not isinstance(actual, list | tuple):
        return False
    _, high = _bounds(check)
    return held if high is None else _counted(actual, check) > high


# --- what a value may be ---------------------------------------------------------------------------------------


def _anything(_: Any) -> str | None:
    return None


def _a_number(value: Any) -> str | None:
    return None if _is_number(value) else "must be a number"


def _a_size(value: Any) -> str | None:
    return None if _is_size(value) else "must be a whole number, 0 or more"


def _choices(value: Any) -> str | None:
    return None if isinstance(value, list) and value else "must be a list of at least one value"


def _a_list(value: Any) -> str | None:
    return None if isinstance(value, list) else "must be a list"


def _an_expression(value: Any) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_EXPRESSION:
        return f"must be a regular expression of at most {MAX_EXPRESSION} characters"
    try:
        _compiled(value)
    except AuthoringError:
        return "must be a regular expression of the linear-time engine (RE2): no look-around, no back-references"
    return None


def _a_count(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "must be an object of `of`, a pattern, and of `equals`, `gte` or `lte`"
    said = cast("dict[str, Any]", value)
    if set(said) - {"of", *_BOUNDS}:
        return "may hold `of`, `equals`, `gte` and `lte`, and nothing else"
    if "of" not in said or len(said) == 1 or ("equals" in said and len(said) > 2):
        return "must hold `of`, and either `equals` or a bound `gte`, `lte` or both"
    wrong = [name for name in _BOUNDS if name in said and not _is_size(said[name])]
    return f"`{wrong[0]}` must be a whole number, 0 or more" if wrong else None


# --- parts -----------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _counted(actual: Any, check: CheckAssertion) -> int:
    return sum(map(json_match(check.value["of"]).quick, actual))


def _bounds(check: CheckAssertion) -> tuple[int, int | None]:
    said: Mapping[str, Any] = check.value
    if "equals" in said:
        return said["equals"], said["equals"]
    return said.get("gte", 0), said.get("lte")


def _names_list(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_names_list, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, list | tuple)


def _keys(items: Any) -> set[bytes]:
    """One key for all values that are equal: 1 and 1.0 have the same, 1 and True don't."""
    return {canonical_bytes(_levelled(item)) for item in items}


def _levelled(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _levelled(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_levelled(item) for item in cast("list[Any]", value)]
    return value


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    return compile_linear(expression, "matches_regex")


OPERATORS: Mapping[str, Operator] = {
    "exists": Operator(lambda _, __: True, _found, _anything, takes_value=False),
    "absent": Operator(lambda _, __: False, lambda _, __, held: not held, _anything, takes_value=False),
    "equals": Operator(_equals, _found_whole, _anything),
    "not_equals": Operator(_differs, _counterexample_whole, _anything),
    "matches": Operator(_matches, _found_whole, _anything),
    "contains": Operator(_contains, _found, _anything),
    "gt": Operator(lambda actual, check: _is_number(actual) and actual > check.value, _found, _a_number),
    "gte": Operator(lambda actual, check: _is_number(actual) and actual >= check.value, _found, _a_number),
    "lt": Operator(lambda actual, check: _is_number(actual) and actual < check.value, _exceeded, _a_number),
    "lte": Operator(lambda actual, check: _is_number(actual) and actual <= check.value, _exceeded, _a_number),
    "approx": Operator(_approx, _found, _a_number),
    "length": Operator(_length, _longer, _a_size),
    "one_of": Operator(_one_of, lambda actual, _, held: held and not _names_list(actual), _choices),
    "set_equals": Operator(_set_equals, _has_another, _a_list),
    "matches_regex": Operator(_matches_regex, _found, _an_expression),
    "count": Operator(_count, _counted_enough, _a_count),
}
