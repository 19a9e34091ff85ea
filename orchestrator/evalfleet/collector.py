"""Python's garbage collector, set for a process that makes many small values and few cycles."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

#: New objects until a collection of the young, and how many of those until one of the next older ones.
_THRESHOLDS = (50_000, 20, 100)


def spare_collections() -> None:
    """Take all that was imported and built out of every later collection, and collect seldom.

    For a process that ends with its run. An attempt of ours leaves no cycle behind: what a collection finds is the
    author's or the agent's.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def uncollected() -> Generator[None]:
    """Collect nothing while the block runs: it makes values by the million that stay, and hardly a cycle."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Spared:
    """How many blocks spare collections now, and how it was before the first of them."""

    depth = 0
    before: tuple[int, int, int] = (0, 0, 0)


@contextmanager
def spared_collections() -> Generator[None]:
    """As `spare_collections`, while any such block is open, in a process that goes on with something else."""
    if not _Spared.depth:
        _Spared.before = gc.get_threshold()
        spare_collections()
    _Spared.depth += 1
    try:
        yield
    finally:
        _Spared.depth -= 1
        if not _Spared.depth:
            gc.set_threshold(*_Spared.before)
            gc.unfreeze()
