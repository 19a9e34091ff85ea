"""Comparisons as JSON values; there is no NaN, and what is undefined is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evalfleet.model.verdict import Style
from evalfleet.reports.compared import headline
from evalfleet.reports.comparison import Comparison
from evalfleet.reports.pairing import KEY
from evalfleet.reports.statistics import CONFIDENCE, POWER

SCHEMA_VERSION = 1


def comparisons_value(found: Sequence[Comparison]) -> dict[str, Any]:
    """All comparisons that were made at once, with all their flips."""
    return {
        "schema_version": SCHEMA_VERSION,
        "paired_by": KEY,
        "confidence": CONFIDENCE,
        "power": POWER,
        "correction": "Holm",
        "comparisons": [_comparison(each) for each in found],
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    counts = asdict(found.counts)
    return {
        "first": asdict(found.first),
        "second": asdict(found.second),
        "finding": found.finding.value,
        "reason": found.reason,
        "headline": headline(found),
        "measure": "pass_rate" if found.style is Style.PASS else "mean_score",
        "mean_over": "evals with a compared pair",
        "evals": found.evals,
        "first_mean": found.first_mean,
        "second_mean": found.second_mean,
        "difference": found.difference,
        "bounds": None if found.bounds is None else asdict(found.bounds),
        "pairs": {**counts, "changed": {name: list(fields) for name, fields in counts["changed"].items()}},
        "shared_responses": asdict(found.shared),
        "tested": None if found.tested is None else asdict(found.tested),
        "flips": [
            {
                "eval": flip.eval_id,
                "repetition": flip.repetition,
                "cases": list(flip.ordinals),
                "values": list(flip.values),
                "gained": flip.gained,
            }
            for flip in found.flips
        ],
    }
