"""What any sandbox has to do with commands: arguments, streams, endings, trees of processes."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import PurePosixPath

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command
from evalfleet.testing.sandbox_subject import Subject, alive, forever

MEGABYTE = 1_000_000


async def arguments_arrive_as_they_are(on: Subject) -> None:
    arguments = ["a b", "$HOME", "*", "", "`id`", "it's", '"', "two\nlines", "--help", "-p x", "@file", "城市 é"]
    result = await on.run("printf", "<%s>", *arguments)
    assert result.text == "".join(f"<{argument}>" for argument in arguments)


async def commands_start_in_the_workdir(on: Subject) -> None:
    assert (await on.run("pwd")).text.strip() == on.sandbox.workdir


async def a_relative_cwd_starts_at_the_workdir(on: Subject) -> None:
    await on.run("mkdir", "-p", "deep/er")
    result = await on.sandbox.run(Command(argv=("pwd",), cwd="deep/er"))
    assert result.text.strip() == f"{on.sandbox.workdir}/deep/er"


async def an_absolute_cwd_is_taken(on: Subject) -> None:
    assert (await on.sandbox.run(Command(argv=("pwd",), cwd="/"))).text == "/\n"


async def a_relative_program_starts_at_the_cwd(on: Subject) -> None:
    await on.sandbox.write("bin/hello", b"#!/bin/sh\necho hello\n")
    await on.run("chmod", "+x", "bin/hello")
    assert (await on.sandbox.run(Command(argv=("./hello",), cwd="bin"))).text == "hello\n"


async def the_environment_of_a_command_is_its_own(on: Subject) -> None:
    value = "a 'b' $c\né"
    result = await on.sandbox.run(Command(argv=("printenv", "ONCE"), env={"ONCE": value}))
    assert result.text == f"{value}\n"
    assert (await on.run("printenv", "ONCE")).exit_code == 1


async def the_environment_of_the_spec_reaches_every_command(on: Subject) -> None:
    sandbox = await on.create("with-env", SandboxSpec(env={"COLOUR": "blue", "SHAPE": "round"}))
    result = await sandbox.run(Command(argv=("sh", "-c", "echo $COLOUR $SHAPE"), env={"SHAPE": "square"}))
    assert result.text == "blue square\n"


async def the_locale_is_utf8(on: Subject) -> None:
    assert (await on.shell("echo ${LC_ALL:-$LANG}")).text == "C.UTF-8\n"


async def home_and_temporary_folder_are_writable(on: Subject) -> None:
    result = await on.shell('touch "$HOME/mine" && f=$(mktemp) && echo x > "$f" && cat "$f"')
    assert (result.exit_code, result.text) == (0, "x\n")


async def stdin_arrives_byte_for_byte(on: Subject) -> None:
    data = bytes(range(256)) * 5
    assert (await on.run("cat", stdin=data)).stdout == data


async def a_large_stdin_arrives_whole(on: Subject) -> None:
    data = b"a" * 3 * MEGABYTE
    result = await on.run("sha256sum", stdin=data)
    assert result.text.split()[0] == hashlib.sha256(data).hexdigest()


async def unread_stdin_does_no_harm(on: Subject) -> None:
    assert (await on.run("true", stdin=b"a" * MEGABYTE)).exit_code == 0


async def without_stdin_a_reader_sees_the_end_at_once(on: Subject) -> None:
    result = await on.run("cat", timeout=10.0)
    assert (result.exit_code, result.stdout) == (0, b"")


async def stdout_and_stderr_stay_apart(on: Subject) -> None:
    result = await on.shell("echo out; echo err >&2")
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


async def bytes_that_are_not_utf8_arrive_as_they_are(on: Subject) -> None:
    assert (await on.run("printf", r"\377\376 caf\303\000")).stdout == b"\xff\xfe caf\xc3\0"


async def characters_are_not_split_at_buffer_bounds(on: Subject) -> None:
    hundred = "é" * 100
    result = await on.shell(f"i=0; while [ $i -lt 700 ]; do printf {hundred}; i=$((i + 1)); done")
    assert result.stdout == ("é" * 70_000).encode()


async def a_line_of_twelve_megabytes_arrives_whole(on: Subject) -> None:
    script = "head -c 12000000 /dev/zero | tr '\\0' x"
    result = await on.sandbox.run(Command(argv=("sh", "-c", script), output_limit=16 * MEGABYTE, timeout=60.0))
    assert result.stdout == b"x" * 12 * MEGABYTE


async def output_over_the_limit_keeps_head_and_tail_and_is_counted(on: Subject) -> None:
    script = "printf begin; head -c 3000000 /dev/zero; printf end; echo small >&2"
    result = await on.sandbox.run(Command(argv=("sh", "-c", script), output_limit=1_000, timeout=60.0))
    assert (len(result.stdout), result.stdout_bytes) == (1_000, 3_000_008)
    assert result.stdout.startswith(b"begin\0") and result.stdout.endswith(b"\0end")
    assert (result.stderr, result.stderr_bytes) == (b"small\n", 6)


async def every_exit_code_is_a_normal_result(on: Subject) -> None:
    for code in (0, 1, 3, 126, 127, 137, 255):
        result = await on.shell(f"exit {code}")
        assert (result.exit_code, result.signal, result.timed_out) == (code, None, False)


async def a_signal_is_told_from_an_exit_code(on: Subject) -> None:
    result = await on.shell("kill -9 $$")
    assert (result.exit_code, result.signal, result.timed_out) == (None, 9, False)


async def a_killed_child_of_a_living_shell_is_the_shells_business(on: Subject) -> None:
    result = await on.shell("sh -c 'kill -9 $$'; echo $?")
    assert (result.exit_code, result.text) == (0, "137\n")


async def a_program_that_is_not_there_ends_with_127(on: Subject) -> None:
    result = await on.run("no-such-program-here")
    assert result.exit_code == 127
    assert b"no-such-program-here" in result.stderr


async def a_program_that_can_not_run_ends_with_126(on: Subject) -> None:
    await on.sandbox.write("data", b"not a program")
    assert (await on.run("./data")).exit_code == 126


async def a_timeout_keeps_the_partial_output(on: Subject) -> None:
    seconds = forever()
    result = await on.shell(f"echo before; echo trouble >&2; sleep {seconds}; echo after", timeout=1.0)
    assert (result.exit_code, result.timed_out) == (None, True)
    assert (result.stdout, result.stderr) == (b"before\n", b"trouble\n")
    assert 1.0 <= result.duration < 10.0
    await on.dead(seconds)


async def a_timeout_ends_what_ignores_the_polite_signals(on: Subject) -> None:
    seconds = forever()
    result = await on.shell(f"trap '' TERM INT HUP; sleep {seconds}; sleep {seconds}", timeout=0.5)
    assert result.timed_out
    await on.dead(seconds)


async def a_timeout_ends_a_child_in_its_own_session(on: Subject) -> None:
    seconds = forever()
    result = await on.shell(f"setsid sleep {seconds} & sleep {seconds}", timeout=0.5)
    assert result.timed_out
    await on.dead(seconds)


async def a_timeout_ends_orphans_that_shed_their_past(on: Subject) -> None:
    seconds = forever()
    orphan = f"(env -i setsid sh -c 'setsid sleep {seconds} &' &)"
    result = await on.shell(f"{orphan}; {orphan}; sleep {seconds}", timeout=0.5)
    assert result.timed_out
    await on.dead(seconds)


async def a_timeout_spares_the_other_commands(on: Subject) -> None:
    spared, ended = forever(), forever()
    other = asyncio.ensure_future(on.shell(f"sleep {spared}", timeout=None))
    await on.started(spared)
    await on.shell(f"sleep {ended}", timeout=0.3)
    assert (alive(spared), alive(ended)) == (1, 0)
    other.cancel()
    await asyncio.wait((other,))


async def cancelling_ends_the_whole_tree(on: Subject) -> None:
    seconds = forever()
    task = asyncio.ensure_future(on.shell(f"setsid sleep {seconds} & sleep {seconds}", timeout=None))
    await on.until(lambda: alive(seconds) == 2, "both processes run")
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    await on.dead(seconds)


async def background_children_do_not_hold_up_the_call(on: Subject) -> None:
    seconds = forever()
    result = await on.shell(f"sleep {seconds} & echo started", timeout=30.0)
    assert (result.exit_code, result.text) == (0, "started\n")
    assert result.duration < 5.0
    await on.started(seconds)


async def a_background_service_outlives_its_command_and_may_go_on_writing(on: Subject) -> None:
    await on.shell("(while :; do echo tick; echo x >> ticks; sleep 0.05; done) & :")
    before = len(await on.sandbox.read("ticks")) if await _exists(on, "ticks") else 0
    await on.clock.sleep(0.5)
    assert len(await on.sandbox.read("ticks")) >= before + 4


async def commands_run_side_by_side(on: Subject) -> None:
    start = on.clock.monotonic()
    results = await asyncio.gather(*(on.shell(f"sleep 1; echo {number}") for number in range(8)))
    assert [result.text for result in results] == [f"{number}\n" for number in range(8)]
    assert on.clock.monotonic() - start < 5.0


async def files_and_commands_see_the_same_place(on: Subject) -> None:
    await on.sandbox.write("in/put", b"from outside")
    await on.shell("cat in/put > out; printf ' and inside' >> out")
    assert await on.sandbox.read("out") == b"from outside and inside"
    assert PurePosixPath(on.sandbox.workdir).is_absolute()


async def _exists(on: Subject, path: str) -> bool:
    return (await on.run("test", "-e", path)).ok
