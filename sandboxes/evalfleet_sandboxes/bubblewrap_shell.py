"""A person's shell in the directories of a bubblewrap sandbox, in namespaces of its own, whether it lives or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from evalfleet_sandboxes.bubblewrap_rights import Rights
from evalfleet_sandboxes.bubblewrap_view import ENVIRONMENT, ROOM, WORKDIR, View
from evalfleet_sandboxes.host_commands import shell


def shell_argv(bwrap: str, root: Path, view: View, rights: Rights, own: Mapping[str, str]) -> tuple[str, ...]:
    """The command that opens it on the caller's terminal, as the user whose files these are. It has no network.

    `root` is the lease's directory; `own` stands in the environment beside what every sandbox has.
    """
    return (bwrap, *_arguments(root, view, rights, own), "--", *_as_its_user(rights), shell())


def _arguments(root: Path, view: View, rights: Rights, own: Mapping[str, str]) -> Iterator[str]:
    yield from rights.arguments(rights.user(None))
    yield from view.arguments(root / "etc", root.parent)
    yield from ("--unshare-net", "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from ("--bind", f"{root}/room", ROOM)
    for name, value in {**ENVIRONMENT, **own}.items():
        yield from ("--setenv", name, value)
    yield from ("--chdir", WORKDIR)
    if rights.root:
        for right in ("cap_setuid", "cap_setgid", "cap_setpcap"):
            yield from ("--cap-add", right.upper())


def _as_its_user(rights: Rights) -> tuple[str, ...]:
    """What root becomes before the shell, with no right left; others are that user already."""
    if not rights.root:
        return ()
    user = rights.user(None)
    who = (f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups")
    return ("setpriv", *who, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
