"""What the suite asks that no operator can tell."""

from collections.abc import Mapping
from typing import Any

from evalfleet import EvaluationContext, evaluator


@evaluator("mentions-price")
def mentions_price(context: EvaluationContext, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Whether any answer of the conversation told the price."""
    told = [turn["stepId"] for turn in context.history if str(parameters["price"]) in str(turn["observation"])]
    return {"passed": bool(told), "evidence": {"toldAt": told}}
