"""Git on this machine, on a private repository beside a workdir that nobody trusts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import EvalfleetError, InfrastructureError
from evalfleet.execution.private_folders import PrivateFolders
from evalfleet.sandbox_ports import Command, Spawner

#: Seconds that one command may take.
_TIMEOUT = 300.0
_STDERR_TAIL = 300

#: Nothing of a user's or a machine's settings.
_ISOLATED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}

#: Content is kept byte by byte, modes and links as they are, and no program is started for any of it.
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tprecomposeunicode = false
\tprotectHFS = false
\tprotectNTFS = false
\tautocrlf = false
\teol = lf
\tsafecrlf = false
\thooksPath = /dev/null
\tfsmonitor = false
\tuntrackedCache = false
\tcompression = 0
\tfsync = none
\tquotePath = true
[gc]
\tauto = 0
[diff]
\trenames = false
"""

#: Over whatever `.gitattributes` the workdir brings: no conversion, no filter, no driver.
_ATTRIBUTES = "* -text !eol !working-tree-encoding -ident -filter !diff\n"


class CaptureError(EvalfleetError):
    """What is in the workdir could not be looked at; the message says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitTool:
    """How git is run here, and where. `environment` has the PATH that it is found by."""

    spawner: Spawner
    environment: Mapping[str, str]
    folders: PrivateFolders


class PrivateRepository:
    """A repository in the empty folder `folder`, whose work tree is given with each command."""

    def __init__(self, tool: GitTool, folder: Path) -> None:
        self._spawner = tool.spawner
        self._folder = folder
        self._environment = {
            **_ISOLATED,
            "PATH": tool.environment.get("PATH", os.defpath),
            "HOME": str(folder),
            "GIT_DIR": str(folder),
        }

    def make(self) -> None:
        """Lay the repository out, if it is not. Blocking; by hand, for `git init` is a process and leaves more."""
        if (self._folder / "HEAD").exists():
            return
        for name in ("objects", "refs", "info"):
            (self._folder / name).mkdir()
        (self._folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")
        (self._folder / "config").write_text(_CONFIG, encoding="ascii")
        (self._folder / "info" / "attributes").write_text(_ATTRIBUTES, encoding="ascii")

    async def run(
        self, tree: Path, *arguments: str, stdin: bytes = b"", limit: int = 64 << 20, also: int | None = None
    ) -> bytes:
        """What a git command prints; `also` is an exit code that is no failure beside 0.

        Raises CaptureError when it fails, prints more than `limit` bytes, or can't be started.
        """
        command = Command(
            argv=("git", *arguments),
            cwd=str(tree),
            env={"GIT_WORK_TREE": str(tree)},
            stdin=stdin,
            timeout=_TIMEOUT,
            output_limit=limit,
        )
        try:
            result = await self._spawner.run(command, base_env=self._environment)
        except FileNotFoundError as error:
            missing = "git is not installed here" if error.filename == "git" else "the workdir is gone"
            raise CaptureError(missing) from error
        except (OSError, InfrastructureError) as error:
            raise CaptureError(f"git {arguments[0]}: {error}") from error
        if result.timed_out:
            raise CaptureError(f"git {arguments[0]} took longer than {_TIMEOUT:g} s")
        if result.exit_code not in (0, also):
            tail = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace").strip().replace("\n", "; ")
            raise CaptureError(f"git {arguments[0]} ended with {result.exit_code}: {tail}")
        if result.stdout_bytes > limit:
            raise CaptureError(f"git {arguments[0]} printed {result.stdout_bytes} bytes, more than {limit}")
        return result.stdout
