"""The garbage collector of a process that goes on with something else is as it was, whatever ran meanwhile."""

from __future__ import annotations

import gc
from contextlib import ExitStack

from evalfleet.collector import spared_collections, uncollected


def test_a_block_collects_seldom_and_leaves_everything_as_it_was() -> None:
    before = gc.get_threshold()
    with spared_collections():
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_blocks_that_overlap_end_in_any_order() -> None:
    before = gc.get_threshold()
    first, second = ExitStack(), ExitStack()
    first.enter_context(spared_collections())
    second.enter_context(spared_collections())
    first.close()
    assert gc.get_threshold() > before
    second.close()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_block_that_collects_nothing_leaves_the_collector_as_it_was() -> None:
    with uncollected(), uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
