"""Runs `orchestrate` in forks of a process that has imported it: a command costs its own work, not a second of imports.

Run as `python fork_server.py` with a socket as stdin. A byte on it brings four files: the request as JSON (`arguments`,
`cwd`, `environment`), stdout, stderr, and where the exit code is written, minus the signal if one ended the command.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import evalfleet
import evalfleet_adapters
import evalfleet_sandboxes
from evalfleet.cli.main import main

#: Beginnings of modules that commands seldom need, and whose libraries are heavy or mind a fork.
_LEFT = ("evalfleet.testing", "evalfleet.scheduling.ray_", "evalfleet.api.ray_", "evalfleet_sandboxes.kubernetes")
_SECONDS = 100


def import_all(package: ModuleType) -> None:
    """Import what is in a package of ours, but for what is left to the commands that need it."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.startswith(_LEFT):
            imported = importlib.import_module(module.name)
            if module.ispkg:
                import_all(imported)


def forked(control: socket.socket) -> Sequence[str]:
    """Serve requests. Returns the arguments of each in a process of its own, which is to become the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the commands
    while True:
        asked, files, *_ = socket.recv_fds(control, 1, 4)
        if not asked:
            sys.exit()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            command = os.fork()
            if command == 0:
                control.detach()
                return become(*files)
            tell_end(command, files[-1])
        for file in files:
            os.close(file)


def become(request: int, out: int, err: int, told: int) -> Sequence[str]:
    """Make this process what a shell would have started. Returns the command's arguments."""
    os.close(told)
    with os.fdopen(request, encoding="utf-8") as file:
        wanted = json.load(file)
    for target, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["cwd"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return wanted["arguments"]


def tell_end(command: int, told: int) -> None:
    """Wait for the command, or kill it when it takes too long, and tell its exit code; this process ends with it."""
    signal.signal(signal.SIGALRM, lambda _number, _frame: os.kill(command, signal.SIGKILL))
    signal.alarm(_SECONDS)
    _, status = os.waitpid(command, 0)
    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


if __name__ == "__main__":
    program = Path(sys.executable).with_name("orchestrate")
    sys.path[0] = str(program.parent)
    importlib.import_module("ruamel.yaml")
    for each in (evalfleet, evalfleet_adapters, evalfleet_sandboxes):
        import_all(each)
    gc.freeze()  # a collection in a fork would copy all of it
    sys.argv = [str(program), *forked(socket.socket(fileno=0))]
    main()
