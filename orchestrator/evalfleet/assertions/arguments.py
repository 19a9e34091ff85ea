"""What authors may give to a criterion; anything else is an AuthoringError that says what to write."""

from __future__ import annotations

import math
from typing import Any

from evalfleet.assertions.tools import Quantified
from evalfleet.errors import AuthoringError


def require_match(match: Any, kind: type[Quantified], place: str, *, counted: bool = True) -> None:
    """Refuse what is no `kind` of match, or has a count where none belongs."""
    if not isinstance(match, kind):
        raise AuthoringError(f"{place} takes {kind.written}, not {type(match).__name__}")
    if not counted and match.quantifier is not None:
        raise AuthoringError(f"{place} takes no count")


def require_order(matches: tuple[Any, ...], kind: type[Quantified], place: str) -> None:
    """Refuse fewer than two matches, and counts."""
    if len(matches) < 2:
        raise AuthoringError(f"{place} needs at least two matches")
    for match in matches:
        require_match(match, kind, place, counted=False)


def require_limit(limit: Any, place: str, *, whole: bool) -> None:
    """Refuse what is no finite number of at least 0."""
    if isinstance(limit, bool) or not isinstance(limit, int if whole else (int, float)):
        raise AuthoringError(f"{place} needs a {'whole ' if whole else ''}number, not {limit!r}")
    if not 0 <= limit < math.inf:
        raise AuthoringError(f"{place} needs a finite number of at least 0, not {limit!r}")
