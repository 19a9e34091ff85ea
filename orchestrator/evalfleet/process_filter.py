"""A filter on system calls, as a classic BPF program: it refuses what exploits of the kernel need and tests don't.

A deny list, not a wall: the walls are namespaces, no capability and no new privileges. It stands on the standard
library alone and little of that, since the launcher is forked with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

#: Every CLONE_NEW* but NEWTIME, whose bit is part of the signal number in `clone`.
_NEW_NAMESPACES = 0x7E02_0000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206

#: System calls that are refused whatever their arguments: name, number on x86_64, number on aarch64.
_REFUSED = (
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("setns", 308, 268),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("fspick", 433, 433),
    ("mount_setattr", 442, 442),
    ("keyctl", 250, 219),
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("userfaultfd", 323, 282),
    ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294),
    ("init_module", 175, 105),
    ("finit_module", 313, 273),
    ("delete_module", 176, 106),
    ("io_uring_setup", 425, 425),
    ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427),
    ("open_by_handle_at", 304, 265),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("pidfd_getfd", 438, 438),
    ("kcmp", 312, 272),
    ("syslog", 103, 116),
    ("swapon", 167, 224),
    ("swapoff", 168, 225),
    ("reboot", 169, 142),
    ("acct", 163, 89),
    ("quotactl", 179, 60),
)


#: What differs between architectures: how the kernel names it, its column of `_REFUSED`, and the numbers of `clone`,
#: `unshare`, `ioctl` and `ptrace`.
_MACHINES = {
    "x86_64": (0xC000_003E, 1, 56, 272, 16, 101),
    "aarch64": (0xC000_00B7, 2, 220, 97, 29, 117),
}
#: Its flags are in memory, where no filter can look; "not implemented" makes C libraries use `clone`.
_CLONE3 = 435
#: The other calls of an x86_64 kernel, with numbers of their own.
_X32 = 0x4000_0000

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets of the low halves on a little-endian machine
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_Instruction = tuple[int, int, int, int]


def program(machine: str) -> list[_Instruction] | None:
    """The instructions for an architecture, as (code, jump if true, jump if false, constant); None if unknown."""
    if machine not in _MACHINES:
        return None
    audit, column, clone, unshare, ioctl, ptrace = _MACHINES[machine]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    steps: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, audit),
        refuse,  # a 32-bit program: its numbers mean other calls
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for call in _REFUSED:
        steps += [(_EQUAL, 0, 1, int(call[column])), refuse]
    for number, argument, test, values in (
        (clone, _FIRST, _ANY_BIT, (_NEW_NAMESPACES,)),
        (unshare, _FIRST, _ANY_BIT, (_NEW_NAMESPACES,)),
        (ioctl, _SECOND, _EQUAL, (_TIOCSTI, _TIOCLINUX)),
        (ptrace, _FIRST, _EQUAL, (_PTRACE_ATTACH, _PTRACE_SEIZE)),
    ):
        checks = [step for value in values for step in ((test, 0, 1, value), refuse)]
        steps += [(_EQUAL, 0, len(checks) + 2, number), (_LOAD, 0, 0, argument), *checks, (_RETURN, 0, 0, _ALLOW)]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


_STEP = struct.Struct("=HBBI")
#: Put together once, before there is a process that needs it; nothing where there is no filter.
_CODE = b"".join(_STEP.pack(*step) for step in program(os.uname().machine) or ())
_PROGRAM = _Program(len(_CODE) // _STEP.size, _CODE)
_WHOLE = ctypes.byref(_PROGRAM)


def install() -> bool:
    """Put the filter on this process and what it starts; it must have no new privileges. False where there is none.

    Raises OSError when the kernel refuses it.
    """
    if not _CODE:
        return False
    if _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _WHOLE) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EINVAL:  # a kernel without filters
        return False
    raise OSError(number, os.strerror(number))
