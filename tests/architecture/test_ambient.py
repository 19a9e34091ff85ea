"""Environment, clock, randomness and output are each touched in one file; importing a module does nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.architecture.source import PACKAGES, ROOT, Source, product_sources
from tests.architecture.test_imports import ENGINE, HOMES, matches

#: Processes are started and waited for here; the launcher runs between fork and exec.
PROCESSES = (f"{ENGINE}/process*.py",)
#: Waiting for a foreign process in real time, on which no decision of ours depends.
WAITING = (
    *PROCESSES,
    f"{ENGINE}/scheduling/ray_*.py",
    *(f"{ENGINE}/store/{name}.py" for name in ("embedded", "lifeline", "server")),
)
#: Loading what a user names when it is used: a public name, an entry point, a command, an agent's `module:attribute`.
BY_NAME = (
    *(f"{ENGINE}/{name}.py" for name in ("__init__", "api/__init__", "plugins", "cli/front", "cli/main")),
    "adapters/evalfleet_adapters/entries.py",
)
CLOCK = (f"{ENGINE}/clock.py", f"{ENGINE}/testing/fakes.py")

#: What an expression ends in, where it may stand, and what to use instead.
AMBIENT = {
    "os.environ": ((f"{ENGINE}/settings.py",), "evalfleet.settings, or Secrets.resolve in an adapter"),
    "os.getenv": ((f"{ENGINE}/settings.py",), "evalfleet.settings"),
    "os.urandom": ((f"{ENGINE}/randomness.py",), "the Random port"),
    "os.fork": (PROCESSES, "the Spawner port"),
    "os.system": ((), "the Spawner port"),
    "os.popen": ((), "the Spawner port"),
    "create_subprocess_exec": (PROCESSES, "the Spawner port"),
    "create_subprocess_shell": ((), "the Spawner port"),
    "import_module": (BY_NAME, "an import at the top, or evalfleet.plugins"),
    "__import__": ((), "an import at the top, or evalfleet.plugins"),
    "datetime.now": (CLOCK, "the Clock port"),
    "datetime.utcnow": ((), "the Clock port"),
    "datetime.today": ((), "the Clock port"),
    "date.today": ((), "the Clock port"),
    "asyncio.sleep": ((*CLOCK, *WAITING), "Clock.sleep"),
    "loop.time": (WAITING, "Clock.monotonic"),
}

HEAVY = ("ray", "sqlalchemy", "scipy", "numpy", "pandas", "kubernetes_asyncio", "pyarrow", "altair")


def ambient(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name):
            text = ast.unparse(node)
            for banned, (homes, instead) in AMBIENT.items():
                if (text == banned or text.endswith("." + banned)) and not matches(source.path, homes):
                    yield f"{source.path}:{node.lineno} uses {banned}; use {instead}"


def test_ambient_state_is_reached_in_one_place() -> None:
    problems = [problem for source in product_sources() for problem in ambient(source)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("text", ["os.environ['X']", "datetime.datetime.now()", "await asyncio.sleep(1)"])
def test_the_rule_sees_what_it_forbids(text: str) -> None:
    assert len(list(ambient(Source("x.py", "x", text)))) == 1


#: Imports the modules named on stdin in order; reports what each one opened, spawned or pulled in.
PROBE = """
import importlib, json, sys
modules, heavy = json.load(sys.stdin)
acts = []
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.system", "socket.connect", "socket.bind", "os.mkdir", "os.remove"):
        acts.append(f"{event} {arguments!r:.80}")
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        acts.append(f"open {arguments[0]!r} for writing")
sys.addaudithook(watch)
found = {}
for name in modules:
    before, acts[:] = set(sys.modules), []
    importlib.import_module(name)
    pulled = sorted({module.split(".")[0] for module in set(sys.modules) - before} & set(heavy))
    if acts or pulled:
        found[name] = pulled + acts
print("found:" + json.dumps(found))
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_module_prints_nothing_does_nothing_and_pulls_in_nothing_heavy(package: str) -> None:
    sources = [source for source in product_sources() if source.module.split(".")[0] == package]
    at_home = {s.module for s in sources for heavy in HEAVY for home in HOMES.get(heavy, ()) if fnmatch(s.path, home)}
    modules = [source.module for source in sources if source.module not in at_home]
    modules = [module for module in modules if not module.endswith("__main__") and ".migrations." not in module]
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", PROBE],
        input=json.dumps([modules, HEAVY]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "found:{}\n"
