"""An image for the tests of container engines, made of this machine's own programs: nothing is fetched."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which

PROGRAMS = (
    *("awk", "base64", "bash", "cat", "chmod", "chown", "cp", "cut", "dash", "date", "dd", "echo", "env"),
    *("false", "find", "grep", "head", "id", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "printenv"),
    *("printf", "ps", "pwd", "readlink", "rm", "sed", "seq", "setsid", "sha256sum", "sleep", "sort", "stat"),
    *("tail", "tar", "tee", "test", "timeout", "touch", "tr", "true", "uname", "wc", "yes"),
)
_PASSWD = b"root:x:0:0::/root:/bin/sh\nworker:x:1000:1000::/home/worker:/bin/sh\n"
_GROUP = b"root:x:0:\nworker:x:1000:\n"
_FOLDERS = {"tmp": 0o1777, "root": 0o700, "run": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755, "app": 0o755}
_LIBRARY = re.compile(r"(/\S+)(?= \(0x)")


#: The machine's own Python, and the part of its library that a program without imports of weight needs.
_PYTHON = Path("/usr/bin/python3")
_LIBRARY_PARTS = ("*.py", "collections/*.py", "encodings/*.py", "importlib/*.py", "re/*.py")


def image(*, without: tuple[str, ...] = (), python: bool = False) -> bytes:
    """The tar of a root file system with a POSIX shell, core utilities, bash and a user `worker`.

    `without` leaves programs out; `sh` is one of them. `python` adds a small python3. `app` belongs to root.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("bin", "lib", "lib64", "sbin"):
            tar.addfile(_entry(name, tarfile.SYMTYPE, 0o777, link=f"usr/{name}"))
        for name, mode in _FOLDERS.items():
            tar.addfile(_entry(name, tarfile.DIRTYPE, mode))
        home = _entry("home/worker", tarfile.DIRTYPE, 0o700)
        home.uid = home.gid = 1000
        tar.addfile(home)
        for name, content in (("etc/passwd", _PASSWD), ("etc/group", _GROUP)):
            _add(tar, name, content, 0o644)
        if "sh" not in without:
            tar.addfile(_entry("usr/bin/sh", tarfile.SYMTYPE, 0o777, link="dash"))
        libraries: dict[str, Path] = {}
        for name in PROGRAMS:
            if name not in without:
                program = Path(which(name) or "").resolve()
                _add(tar, f"usr/bin/{name}", program.read_bytes(), 0o755)
                libraries |= {str(library): library for library in _libraries(program)}
        if python:
            program = _PYTHON.resolve()
            _add(tar, "usr/bin/python3", program.read_bytes(), 0o755)
            libraries |= {str(library): library for library in _libraries(program)}
            library = Path("/usr/lib") / program.name
            for file in (file for part in _LIBRARY_PARTS for file in library.glob(part)):
                _add(tar, str(file).removeprefix("/"), file.read_bytes(), 0o644)
        for name, library in libraries.items():
            place = name if name.startswith("/usr/") else f"/usr{name}"
            _add(tar, place.removeprefix("/"), library.resolve().read_bytes(), 0o755)
    return stream.getvalue()


def _libraries(program: Path) -> Iterator[Path]:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return (Path(found) for found in _LIBRARY.findall(listed.stdout))


def _entry(name: str, kind: bytes, mode: int, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, link
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    # a rootless docker closes a folder that is only implied to all but root's capabilities
    known = set(tar.getnames())
    for folder in reversed([str(parent) for parent in Path(name).parents][:-1]):
        if folder not in known:
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
    entry = _entry(name, tarfile.REGTYPE, mode)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
