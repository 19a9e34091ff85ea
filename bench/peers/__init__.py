"""The peers: how each is installed, and its command line for a workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.peers import inspect_ai, promptfoo, pydantic_evals
from bench.peers.base import Peer

PEERS: dict[str, Callable[[Path], Peer]] = {
    "inspect": inspect_ai.InspectAI,
    "promptfoo": promptfoo.Promptfoo,
    "pydantic-evals": pydantic_evals.PydanticEvals,
}

__all__ = ["PEERS", "Peer"]
