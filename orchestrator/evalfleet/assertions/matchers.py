"""Every matcher on a value in one place; `matches(schema)` lives in `schema_match`, whose libraries are heavy."""

from __future__ import annotations

from evalfleet.assertions.custom import define_match, define_score_match, satisfies
from evalfleet.assertions.json_match import as_match, json_match
from evalfleet.assertions.match import Match, all_of, any_of, evaluate_match, negate
from evalfleet.assertions.paths import references_any_path
from evalfleet.assertions.texts import excludes, has_sections, includes, includes_url, pattern, similarity
from evalfleet.assertions.values import approx, command_succeeded, equals, is_defined, is_false, is_true, one_of

__all__ = [
    "Match",
    "all_of",
    "any_of",
    "approx",
    "as_match",
    "command_succeeded",
    "define_match",
    "define_score_match",
    "equals",
    "evaluate_match",
    "excludes",
    "has_sections",
    "includes",
    "includes_url",
    "is_defined",
    "is_false",
    "is_true",
    "json_match",
    "negate",
    "one_of",
    "pattern",
    "references_any_path",
    "satisfies",
    "similarity",
]
