"""What is spent, possible and reserved of a run's budget, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalfleet.reports.figures import count, counted, money

_AMOUNTS = ("spent", "possible", "reserved")


def budget_line(budget: Mapping[str, Any]) -> str:
    """Of the run's own budget; empty without one."""
    usd, tokens = budget.get("usd"), budget.get("tokens")
    parts: list[str] = []
    if usd is not None:
        amounts = ", ".join(f"{money(usd[name])} {name}" for name in _AMOUNTS)
        parts.append(f"{amounts} of {money(usd['limit'])}")
    if tokens is not None:
        amounts = ", ".join(f"{count(tokens[name])} {name}" for name in _AMOUNTS)
        parts.append(f"{amounts} of {counted(tokens['limit'], 'token')}")
    return f"budget {' and '.join(parts)}" if parts else ""


def budget_lines(budget: Mapping[str, Any]) -> list[str]:
    """Of the run's budget and those of its arms."""
    arms: Mapping[str, Mapping[str, Any]] = budget.get("arms", {})
    lines = [budget_line(budget), *(f"{arm}: {budget_line(figures)}" for arm, figures in arms.items())]
    return [line for line in lines if line]
