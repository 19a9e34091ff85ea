"""Entering the namespaces of another process, and giving up every privilege there. Linux only.

`join` moves this process to where its next child is born; `settle` is that child's first act. It stands on the
standard library alone and little of that, since `process_launcher` runs it between fork and exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Collection, Sequence

from evalfleet.process_filter import install

_NS_GET_USERNS = 0xB701
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION = 0x2008_0522
#: In the order of entering: once in the mount namespace, nothing of ours is in sight any more.
_KINDS = ("net", "ipc", "uts", "cgroup", "pid", "mnt")
#: Without these two of its own a process is in no sandbox: its id has been given to another one.
_ESSENTIAL = frozenset({"pid", "mnt"})

_libc = ctypes.CDLL(None, use_errno=True)


def join(pid: int, cgroups: Sequence[bytes]) -> list[int]:
    """Put this single-threaded process into the namespaces of the process `pid`; the doors of the cgroups' folders.

    A process namespace is entered by the next child only, and so are the cgroups: this process counts for none of
    them. Raises OSError, after which it is good for nothing; ESRCH when `pid` has no namespaces of its own.
    """
    doors = [os.open(os.path.join(folder, b"cgroup.procs"), os.O_WRONLY) for folder in cgroups]
    with contextlib.suppress(PermissionError):  # an ordinary user keeps its groups, which mean nothing inside
        os.setgroups(())
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody in there may look into or steer what comes from outside
    spaces = {kind: descriptor for kind in _KINDS if (descriptor := _foreign(pid, kind)) is not None}
    if _ESSENTIAL - spaces.keys():
        raise OSError(errno.ESRCH, "not a process with namespaces of its own")
    user = _foreign(pid, "user")
    owner = _owner(spaces["mnt"])
    if owner is not None:
        _call("setns", owner, 0)
    for descriptor in spaces.values():
        _call("setns", descriptor, 0)
    if user is not None and (owner is None or not os.path.sameopenfile(user, owner)):
        _call("setns", user, 0)  # one more inside that which owns the others
    os.chdir("/")
    return doors


def settle(uid: int, gid: int, *, doors: Sequence[int], filtered: bool, keep: Collection[int]) -> None:
    """Become `uid` and `gid` without a capability or a way to one, in a session of its own; only `keep` stays open.

    `doors` are those of `join`; `filtered` puts the filter of `process_filter` on. Raises OSError.
    """
    for door in doors:
        os.write(door, b"0")
    _close_all_but(keep)
    os.setsid()
    os.umask(0o022)
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:  # beyond the last one
                break
            raise _error()
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)  # a change of user sets it again
    if filtered:
        install()


def _foreign(pid: int, kind: str) -> int | None:
    """A descriptor of the process's namespace of this kind; None when it is ours, or the kernel has none."""
    try:
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}/ns"):
            return None
        raise
    if os.path.samestat(os.fstat(descriptor), os.stat(f"/proc/self/ns/{kind}")):
        os.close(descriptor)
        return None
    return descriptor


def _owner(space: int) -> int | None:
    """The user namespace that owns a namespace; None when that is ours."""
    owner = fcntl.ioctl(space, _NS_GET_USERNS)
    if os.path.samestat(os.fstat(owner), os.stat("/proc/self/ns/user")):
        os.close(owner)
        return None
    return owner


def _close_all_but(kept: Collection[int]) -> None:
    """Close what came from outside; the streams lead nowhere, as code in here may expect to have them."""
    start = 0
    for descriptor in sorted(kept):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
    for number in range(3):
        if number not in kept:
            os.open("/dev/null", os.O_RDWR)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
