"""The conformance suite that every sandbox backend passes, ours and anyone's.

    TestMine = sandbox_suite(make_provider, deviations={"a_signal_is_told_from_an_exit_code": "the engine folds it"})

Needs pytest (`evalfleet[testing]`) and a POSIX shell with core utilities in the sandbox. Checks that look for
processes see those of this host only.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from evalfleet.model.definition import SandboxSpec
from evalfleet.testing import (
    sandbox_command_checks,
    sandbox_detached_checks,
    sandbox_export_checks,
    sandbox_file_checks,
    sandbox_fleet_checks,
    sandbox_life_checks,
    sandbox_limit_checks,
    sandbox_network_checks,
    sandbox_reset_checks,
    sandbox_user_checks,
)
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import MakeProvider, Subject

Check = Callable[[Subject], Coroutine[Any, Any, None]]


def _checks(*modules: ModuleType) -> dict[str, Check]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


CHECKS = _checks(
    sandbox_command_checks,
    sandbox_detached_checks,
    sandbox_file_checks,
    sandbox_export_checks,
    sandbox_life_checks,
    sandbox_reset_checks,
    sandbox_user_checks,
    sandbox_limit_checks,
    sandbox_network_checks,
    sandbox_fleet_checks,
)
#: A backend that deviates more often is another kind of thing.
MAX_DEVIATIONS = 3


def sandbox_suite(
    make_provider: MakeProvider, deviations: Mapping[str, str] | None = None, *, image: str | None = None
) -> type:
    """A pytest class with one test a check.

    `make_provider(state)` opens a provider that keeps its directories below `state`. `deviations` gives, by the
    check's name, the reason why the backend can't do it; such a check has to fail. `image` is what the sandboxes
    of a backend with images start from. Raises ValueError for a name that is no check, or too many.
    """
    deviations = deviations or {}
    if unknown := sorted(set(deviations) - set(CHECKS)):
        raise ValueError(f"not checks of the suite: {', '.join(unknown)}")
    if len(deviations) > MAX_DEVIATIONS:
        raise ValueError(f"{len(deviations)} deviations; a sandbox may have {MAX_DEVIATIONS}")
    tests = {f"test_{name}": _test(check, make_provider, deviations.get(name), image) for name, check in CHECKS.items()}
    return type("SandboxSuite", (), tests)


def _test(check: Check, make: MakeProvider, deviation: str | None, image: str | None) -> Callable[..., None]:
    async def run(folder: Path) -> None:
        outside, state = folder / "outside", folder / "state"
        outside.mkdir()
        async with make(state) as provider:
            sandbox = await provider.create(SandboxSpec(image=image), "subject")
            try:
                await check(Subject(provider, sandbox, outside, state, make, image))
            finally:
                await sandbox.close()

    def test(_: object, tmp_path: Path) -> None:
        asyncio.run(run(tmp_path))

    return test if deviation is None else pytest.mark.xfail(reason=deviation, strict=True)(test)
