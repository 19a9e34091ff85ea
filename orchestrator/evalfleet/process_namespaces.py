"""Making namespaces after a template, and giving up every privilege in them. Linux only.

`enter` and `move_in` bring a warden into a template, a process whose view of the machine is copied: a copy of its
mounts costs a hundredth of making them. `fork_first` forks the first process of new namespaces; `part`, `furnish` and
`guard` are its first acts, `settle` is that of each child of it. It stands on the standard library alone and little of
that, since the launcher is forked with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Collection, Generator, Sequence

from evalfleet.process_filter import install
from evalfleet.process_protocol import Mount, User

_NS_GET_USERNS = 0xB701
_AF_INET, _SOCK_DGRAM, _SIOCSIFFLAGS = 2, 2, 0x8914
_LOOPBACK_UP = struct.pack("16sh14x", b"lo", 1)
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION = 0x2008_0522
#: By which root's first process makes others of another user, and ends what they leave: cap_kill, setgid, setuid.
_TO_HOLD_TOGETHER = 1 << 5 | 1 << 6 | 1 << 7
_NEW_MOUNTS, _NEW_IPC, _NEW_PROCESSES, _NEW_NETWORK = 0x0002_0000, 0x0800_0000, 0x2000_0000, 0x4000_0000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _AGAIN, _BIND = 1, 2, 4, 8, 32, 4096
#: The same on every architecture; C libraries are late to have functions for them.
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_AT_CWD, _CLONED_WHOLE, _FROM_DESCRIPTOR = -100, 1 | 0x8000, 4
#: Of no use to a test, and writable by root.
_OF_THE_MACHINE = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus")

#: A warden's own process namespace, and the user namespace that all in an enclosure enter in the end, if any.
Home = tuple[int, int | None]

_libc = ctypes.CDLL(None, use_errno=True)
#: Found once, as are the types of what `capset` takes: each first process would look for them again, in copied pages.
_functions = {
    name: getattr(_libc, name) for name in ("prctl", "setns", "unshare", "mount", "syscall", "socket", "capset")
}
_CapabilityHeader, _CapabilitySets = ctypes.c_uint32 * 2, ctypes.c_uint32 * 6


def enter(template: int) -> int | None:
    """Put this single-threaded process into the namespaces of `template`; into that of processes only its next child.

    Returns a descriptor of the innermost user namespace, if that is not the one that owns the others. Raises OSError,
    after which this process is good for nothing; ESRCH when `template` has no mounts or processes of its own: its id
    has been given to another process.
    """
    with contextlib.suppress(PermissionError):  # an ordinary user keeps its groups, which mean nothing inside
        os.setgroups(())
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody in there may look into or steer what comes from outside
    names, groups, processes, mounts, user = (
        _foreign(template, kind) for kind in ("uts", "cgroup", "pid", "mnt", "user")
    )
    if processes is None or mounts is None:
        raise OSError(errno.ESRCH, "not a process with namespaces of its own")
    owner = _owner(mounts)
    for space in (owner, names, groups, processes, mounts):
        if space is not None:
            _call("setns", space, 0)
    same = user is None or (owner is not None and os.path.sameopenfile(user, owner))
    return None if same else user


def move_in(user_space: int | None, *, keep: Collection[int]) -> Home:
    """Be that child, with nothing of ours but `keep` in reach and no way to more rights than it has.

    `user_space` is what `enter` returned.
    """
    _close_all_but(keep if user_space is None else (*keep, user_space))
    os.chdir("/")
    os.setsid()
    os.umask(0o022)
    _bound_to_none()
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return os.open("/proc/self/ns/pid", os.O_RDONLY), user_space


def fork_first(home: Home) -> int:
    """Fork the first process of a new process namespace: its id, or 0 in it. Raises OSError."""
    _call("unshare", _NEW_PROCESSES)
    first = -1
    try:
        first = os.fork()
    finally:
        if first != 0:
            _call("setns", home[0], 0)  # else the next child would be born there, too
    return first


def part(*, network: bool) -> None:
    """As the first process, get mounts and IPC of its own, and a network if that says so.

    Names and the view of control groups nobody inside can change: those of the template do. Raises OSError.
    """
    _call("unshare", _NEW_MOUNTS | _NEW_IPC | (_NEW_NETWORK if network else 0))


def furnish(mounts: Sequence[Mount], *, network: bool) -> None:
    """As the first process, mount what must be its own; `network` brings the loopback up. Raises OSError."""
    _mount(b"proc", b"/proc", b"proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    for path in _OF_THE_MACHINE:
        if os.access(path, os.W_OK):
            _mount(path, path, b"", _BIND)
            _mount(b"", path, b"", _BIND | _AGAIN | _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    if os.path.isdir("/dev/pts"):
        _mount(b"devpts", b"/dev/pts", b"devpts", _NO_SUID | _NO_PROGRAMS, b"newinstance,ptmxmode=0666,mode=620")
    for source, target, mode, size, below in mounts:
        if source:
            _mount(source, target, b"", _BIND)
        else:
            _mount_memory(target, f"mode={mode:o}" + ("" if size is None else f",size={size}"), below)
    if network:
        any_socket = _call("socket", _AF_INET, _SOCK_DGRAM, 0)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _LOOPBACK_UP)
        os.close(any_socket)


def guard(user: User | None, home: Home, *, filtered: bool, keep: Collection[int]) -> None:
    """As the first process, give up what is not needed to hold together who comes; only `keep` stays open.

    It becomes `user`, or if that is None stays root and may still become another one; `filtered` puts the filter of
    `process_filter` on, for all. Raises OSError.
    """
    if home[1] is not None:
        _call("setns", home[1], 0)  # which gives every capability of that namespace, and the way to them
        _bound_to_none()
    os.chdir("/")
    _close_all_but(keep)
    os.setsid()
    if user is None:
        _hold(_TO_HOLD_TOGETHER)
    else:
        _become(*user)
    if filtered:
        install()


def settle(user: User, doors: Sequence[int], *, keep: Collection[int]) -> None:
    """As a child of the first process, become `user`, without a capability or a way to one; only `keep` stays open.

    `doors` are the files through which it enters its control groups. Raises OSError.
    """
    for door in doors:
        os.write(door, b"0")
    _close_all_but(keep)
    os.setsid()
    _become(*user)


@contextlib.contextmanager
def acting_as(user: User) -> Generator[None]:
    """What is started within is that user, without a capability: to start a program makes the change final."""
    if os.geteuid() != 0:
        yield  # the first process is that user already
        return
    uid, gid = user
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def _bound_to_none() -> None:
    """Close the way to capabilities by starting a program; those that are held stay."""
    for capability in range(64):
        if _functions["prctl"](_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:  # beyond the last one
                break
            raise _error()


def _become(uid: int, gid: int) -> None:
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _hold(0)


def _hold(capabilities: int) -> None:
    """Have these capabilities and no others, and show nothing to others: a change of user or rights would."""
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    _call("capset", header, _CapabilitySets(capabilities, capabilities, 0, 0, 0, 0))
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def _mount(source: bytes, target: bytes, kind: bytes, flags: int, options: bytes = b"") -> None:
    _call("mount", source, target, kind, flags, options)


def _mount_memory(target: bytes, options: str, below: Sequence[bytes]) -> None:
    """Memory in the place of a folder; the mounts below it that stay are taken out and put back."""
    trees = [_call("syscall", _OPEN_TREE, _AT_CWD, path, _CLONED_WHOLE) for path in below]
    if not os.path.isdir(target):
        os.makedirs(target)
    _mount(b"tmpfs", target, b"tmpfs", _NO_SUID | _NO_DEVICES, options.encode())
    for path, tree in zip(below, trees, strict=True):
        os.makedirs(path, exist_ok=True)
        _call("syscall", _MOVE_MOUNT, tree, b"", _AT_CWD, path, _FROM_DESCRIPTOR)
        os.close(tree)


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
    for descriptor in sorted({*kept, 900}):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
    for number in range(3):
        if number not in kept:
            os.open("/dev/null", os.O_RDWR)


def _call(name: str, *arguments: object) -> int:
    result: int = _functions[name](*arguments)
    if result < 0:
        raise _error()
    return result


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
