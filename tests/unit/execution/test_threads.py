"""Author threads: bounded, leaving behind what will not stop, and the bridge back to the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from evalfleet.execution.signals import AttemptEnded
from evalfleet.execution.threads import AuthorThreads, Bridge


async def test_results_and_errors_come_back(threads: AuthorThreads) -> None:
    assert await threads.run(lambda: 41 + 1) == 42
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)


async def test_threads_are_reused_and_never_the_loops_own(threads: AuthorThreads) -> None:
    names = [await threads.run(threading.current_thread) for _ in range(5)]
    assert len(set(names)) == 1 and names[0].daemon and names[0].name == "evalfleet-author"


async def test_at_most_the_limit_runs_at_once() -> None:
    threads, running, peak = AuthorThreads(limit=3), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(12)))
    assert peak[0] == 3
    threads.close()


async def test_a_stuck_thread_gives_its_place_back_and_is_counted_until_it_ends() -> None:
    threads, release = AuthorThreads(limit=1), threading.Event()
    stuck = asyncio.ensure_future(threads.run(release.wait))
    await asyncio.sleep(0.01)
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert threads.leaked == 1
    assert await asyncio.wait_for(threads.run(lambda: "free"), 1) == "free"
    release.set()
    await asyncio.sleep(0.05)
    assert threads.leaked == 0
    threads.close()


async def test_who_is_cancelled_while_waiting_takes_no_place() -> None:
    threads, release = AuthorThreads(limit=1), threading.Event()
    holder = asyncio.ensure_future(threads.run(release.wait))
    await asyncio.sleep(0)
    waiters = [asyncio.ensure_future(threads.run(lambda: None)) for _ in range(3)]
    await asyncio.sleep(0)
    for waiter in waiters[:2]:
        waiter.cancel()
    release.set()
    await asyncio.wait_for(asyncio.gather(holder, waiters[2]), 1)
    assert await asyncio.wait_for(threads.run(lambda: "again"), 1) == "again"
    assert threads.leaked == 0
    threads.close()


async def test_a_place_handed_to_someone_cancelled_at_that_moment_is_not_lost() -> None:
    threads, release = AuthorThreads(limit=1), threading.Event()
    holder = asyncio.ensure_future(threads.run(release.wait))
    await asyncio.sleep(0)
    waiter = asyncio.ensure_future(threads.run(lambda: None))
    await asyncio.sleep(0)
    holder.add_done_callback(lambda _: waiter.cancel())
    release.set()
    await asyncio.wait([holder, waiter])
    assert await asyncio.wait_for(threads.run(lambda: "free"), 1) == "free"
    threads.close()


async def test_a_bridge_carries_values_errors_and_signals() -> None:
    bridge = Bridge(asyncio.get_running_loop())

    async def value() -> int:
        await asyncio.sleep(0)
        return 7

    async def error() -> None:
        raise AttemptEnded

    assert await asyncio.to_thread(bridge.call, value()) == 7
    with pytest.raises(AttemptEnded):
        await asyncio.to_thread(bridge.call, error())


async def test_a_closed_bridge_releases_who_waits_and_refuses_more() -> None:
    bridge, ended = Bridge(asyncio.get_running_loop()), []

    def body() -> None:
        for _ in range(2):
            try:
                bridge.call(asyncio.sleep(60))
            except AttemptEnded:
                ended.append(time.monotonic())

    waiting = asyncio.ensure_future(asyncio.to_thread(body))
    await asyncio.sleep(0.02)
    bridge.close()
    await asyncio.wait_for(waiting, 1)
    assert len(ended) == 2


async def test_a_plain_body_may_use_threads_of_its_own(attempt: Any) -> None:
    def body(t: Any) -> None:
        sessions = [t.new_session() for _ in range(4)]
        workers = [threading.Thread(target=lambda s=session: s.send("x").succeeded()) for session in sessions]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    evidence = await attempt(body)
    assert (evidence.summary.verdict, evidence.summary.turns, evidence.summary.assertions) == ("passed", 4, 4)


async def test_many_plain_bodies_share_few_threads(attempt: Any) -> None:
    threads = AuthorThreads(limit=2)

    def body(t: Any) -> None:
        t.send("x").succeeded()

    results = await asyncio.gather(*(attempt(body, using={"threads": threads}) for _ in range(20)))
    assert {evidence.summary.verdict for evidence in results} == {"passed"}
    assert threads.leaked == 0
    threads.close()
