"""Running the author's test body, and reading how it ended."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from evalfleet.errors import AttemptFailure, AuthoringError, FailureKind
from evalfleet.execution.blame import blame
from evalfleet.execution.context import ScoreT, SyncT, T
from evalfleet.execution.ledger import Ledger
from evalfleet.execution.plain_assert import read_assert
from evalfleet.execution.scenario import run_scenario
from evalfleet.execution.signals import BodyEnd, leaves
from evalfleet.execution.state import AttemptState
from evalfleet.execution.threads import Bridge
from evalfleet.execution.unrecorded import NOT_RECORDED_CODE, NotRecorded
from evalfleet.model.suite import DeclaredScenario
from evalfleet.model.verdict import Style


async def run_body(ledger: Ledger) -> None:
    """Run the test body to its end; whatever it raises becomes the attempt's failure, a failed gate, or nothing.

    Raises CancelledError when the attempt is broken off, or when the body left its task cancelled.
    """
    state = ledger.state
    try:
        returned = await _call(ledger)
        _check_returned(state, returned)
    except asyncio.CancelledError as error:
        if state.broken_off is not None:
            raise
        state.fail(_authored("BODY_CANCELLED", "the test body was cancelled from within"), error)
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the border to author code: attributed here, once
        _conclude(ledger, error)
        _end_sends(state, None)
    else:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            state.fail(_authored("BODY_CANCELLED", "the test body cancelled its own task"))
            raise asyncio.CancelledError  # nothing after it may run in a task that is being cancelled
        _end_sends(state, "the test body returned while a send was in flight; await it")


async def _call(ledger: Ledger) -> Any:
    state = ledger.state
    job = state.job
    body, row = job.definition.body, (job.row,) if job.case.row is not None else ()
    if isinstance(body, DeclaredScenario):
        await run_scenario(ledger, body)
        return None
    if _is_async(body):
        t = ScoreT(ledger) if job.definition.style is Style.SCORE else T(ledger)
        return await body(t, *row)
    bridge = state.bridge = Bridge(asyncio.get_running_loop())
    try:
        return await state.services.threads.run(lambda: body(SyncT(ledger, bridge), *row))
    except KeyboardInterrupt as error:  # raised by the body itself: signals only reach the main thread
        raise AuthoringError("the test body raised KeyboardInterrupt", "EVAL_RAISED") from error


def _is_async(body: Any) -> bool:
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None))  # noqa: B004


def _check_returned(state: AttemptState, returned: Any) -> None:
    if returned is None:
        return
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise AuthoringError("the test body contains `yield`, so that calling it runs nothing", "INVALID_BODY")
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise AuthoringError("the test body returned something to await; declare it with `async def`", "INVALID_BODY")
    state.note(f"the test body returned a {type(returned).__name__}, which means nothing; register an assertion")


def _conclude(ledger: Ledger, error: BaseException) -> None:
    """Sort the errors that ended the body: its own signals, failed asserts, failures known, and its mistakes."""
    for leaf in leaves(error):
        if isinstance(leaf, NotRecorded):
            message = "the test body decides by what a sandbox gave it, which was not recorded"
            ledger.state.fail(AttemptFailure(FailureKind.GRADER, NOT_RECORDED_CODE, message))
        elif isinstance(leaf, BodyEnd):
            continue
        elif isinstance(leaf, AssertionError):
            failed = read_assert(leaf)
            if failed is not None:
                ledger.note_assert(failed)
            else:
                ledger.state.fail(blame(leaf, FailureKind.INFRASTRUCTURE, "EXECUTION_FAILED"), leaf)
        elif isinstance(leaf, AttemptFailure):
            ledger.state.fail(
                blame(leaf, FailureKind.AUTHORING, "EVAL_RAISED")
            )  # its traceback was kept where it was attributed
        else:
            ledger.state.fail(blame(leaf, FailureKind.AUTHORING, "EVAL_RAISED"), leaf)


def _end_sends(state: AttemptState, fault: str | None) -> None:
    """Nothing is sent any more. `fault` says why a send still under way is the author's mistake, if it is one."""
    forsaken = state.forsaken()
    if fault is not None:
        for place in forsaken:
            state.refuse(f"{place}: what this line calls was never awaited", "NEVER_AWAITED")
    if fault is not None and any(line.in_flight for line in state.lines):
        state.refuse(fault, "SEND_NOT_AWAITED")
    state.end("the test body ended before the turn did")


def _authored(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.AUTHORING, code, message)
