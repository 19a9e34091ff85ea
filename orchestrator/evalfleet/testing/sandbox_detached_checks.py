"""What any sandbox has to do with detached commands: output for any number of readers, one end, no tree left."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import Command, Execution, Stream
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import Subject, alive, forever, refused

#: The most bytes of one piece, as `Execution.read` promises.
PIECE = 1 << 20
_WAIT_SECONDS = 5.0
#: Waits for the file `go`, some seconds at most: a backend that reads only what has ended must not hang the suite.
_UNTIL_GO = "n=0; until test -e go || test $n -ge 250; do sleep 0.02; n=$((n + 1)); done"


async def a_detached_command_does_not_hold_up_its_starter(on: Subject) -> None:
    seconds = forever()
    begun = on.clock.monotonic()
    execution = await on.sandbox.start(_script(f"echo begun; sleep {seconds}"))
    assert on.clock.monotonic() - begun < 5.0
    assert (await execution.read(wait=_WAIT_SECONDS)).data == b"begun\n"
    await on.started(seconds)
    await execution.end()


async def output_comes_piece_by_piece_while_the_command_runs(on: Subject) -> None:
    execution = await on.sandbox.start(_script(f"echo one; {_UNTIL_GO}; echo two"))
    first = await execution.read(wait=_WAIT_SECONDS)
    assert (first.data, first.cursor, first.complete) == (b"one\n", 4, False)
    await on.sandbox.write("go", b"")
    assert await _whole(execution, after=first.cursor) == b"two\n"


async def waiting_for_output_ends_without_it(on: Subject) -> None:
    execution = await on.sandbox.start(_script(f"sleep {forever()}"))
    for wait in (0.0, 0.2):
        piece = await execution.read(wait=wait)
        assert (piece.data, piece.cursor, piece.complete) == (b"", 0, False)
    await execution.end()


async def a_command_without_output_is_complete_when_it_has_ended(on: Subject) -> None:
    execution = await on.sandbox.start(_script("exit 7"))
    assert (await execution.result()).exit_code == 7
    for stream in Stream:
        piece = await execution.read(stream, wait=_WAIT_SECONDS)
        assert (piece.data, piece.cursor, piece.complete) == (b"", 0, True)


async def every_offset_can_be_read_again(on: Subject) -> None:
    execution = await on.sandbox.start(_script("printf 0123456789"))
    await execution.result()
    for after in (0, 9, 3, 0, 10):
        assert await _whole(execution, after=after) == b"0123456789"[after:]


async def the_outputs_of_a_detached_command_stay_apart(on: Subject) -> None:
    execution = await on.sandbox.start(_script(r"printf 'out\377'; printf 'err\376' >&2"))
    assert await _whole(execution) == b"out\xff"
    assert await _whole(execution, Stream.STDERR) == b"err\xfe"


async def a_long_output_arrives_whole_in_bounded_pieces(on: Subject) -> None:
    lines = 400_000
    execution = await on.sandbox.start(_script(f"seq 1 {lines}"))
    expected = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
    cursor, found = 0, hashlib.sha256()
    while True:
        piece = await execution.read(after=cursor, wait=_WAIT_SECONDS)
        assert len(piece.data) <= PIECE
        assert piece.cursor == cursor + len(piece.data)
        found.update(piece.data)
        cursor = piece.cursor
        if piece.complete:
            break
    assert (cursor, found.digest()) == (len(expected), hashlib.sha256(expected).digest())


async def readers_that_drop_off_see_everything_once_they_are_back(on: Subject) -> None:
    execution = await on.sandbox.start(_script(f"seq 1 50; {_UNTIL_GO}; seq 51 100"))
    expected = "".join(f"{number}\n" for number in range(1, 101)).encode()

    async def begin() -> tuple[bytes, int]:
        piece = await (await on.sandbox.attach(execution.id)).read(wait=_WAIT_SECONDS)
        return piece.data, piece.cursor

    begun = await asyncio.gather(*(begin() for _ in range(5)))
    dropped = [asyncio.ensure_future(execution.read(after=expected.index(b"51"), wait=60.0)) for _ in range(5)]
    await on.clock.sleep(0.1)
    for reader in dropped:
        reader.cancel()
    await asyncio.wait(dropped)
    assert all(reader.cancelled() for reader in dropped)
    await on.sandbox.write("go", b"")
    for seen, cursor in begun:
        assert seen + await _whole(await on.sandbox.attach(execution.id), after=cursor) == expected
    assert (await execution.result()).stdout == expected


async def a_command_is_attached_to_by_its_id(on: Subject) -> None:
    first = await on.sandbox.start(_script("echo first"))
    second = await on.sandbox.start(_script("echo second; exit 3"))
    assert first.id != second.id
    again = await on.sandbox.attach(second.id)
    assert again.id == second.id
    assert (await _whole(again), (await again.result()).exit_code) == (b"second\n", 3)
    assert await _whole(await on.sandbox.attach(first.id)) == b"first\n"


async def attaching_to_what_was_never_started_is_a_key_error(on: Subject) -> None:
    for name in ("nothing", "", "../escape", "0"):
        with pytest.raises(KeyError):
            await on.sandbox.attach(name)


async def a_detached_command_gets_what_any_command_gets(on: Subject) -> None:
    await on.run("mkdir", "deep")
    command = _script('cat; pwd; echo "$COLOUR $1"', "a 'b' $c")
    execution = await on.sandbox.start(replace(command, cwd="deep", env={"COLOUR": "blue"}, stdin=b"\0in\n"))
    assert await _whole(execution) == f"\0in\n{on.sandbox.workdir}/deep\nblue a 'b' $c\n".encode()


async def a_detached_result_keeps_head_and_tail_and_counts_all(on: Subject) -> None:
    command = _script("printf begin; head -c 3000000 /dev/zero; printf end; echo small >&2")
    execution = await on.sandbox.start(replace(command, output_limit=1_000))
    result = await execution.result()
    assert (len(result.stdout), result.stdout_bytes) == (1_000, 3_000_008)
    assert result.stdout.startswith(b"begin\0") and result.stdout.endswith(b"\0end")
    assert (result.stderr, result.stderr_bytes) == (b"small\n", 6)
    assert len(await _whole(execution)) == 3_000_008


async def a_detached_end_is_told_as_any_other(on: Subject) -> None:
    for ending in ("exit 137", "kill -9 $$", "exit 0"):
        told = await on.shell(ending)
        result = await (await on.sandbox.start(_script(ending))).result()
        assert (result.exit_code, result.signal, result.timed_out) == (told.exit_code, told.signal, False)


async def a_detached_program_that_is_not_there_ends_with_127(on: Subject) -> None:
    result = await (await on.sandbox.start(Command(argv=("no-such-program-here",)))).result()
    assert result.exit_code == 127
    assert b"no-such-program-here" in result.stderr


async def the_result_may_be_asked_for_by_many_and_often(on: Subject) -> None:
    execution = await on.sandbox.start(_script("sleep 0.2; echo done; exit 4"))
    given_up = asyncio.ensure_future(execution.result())
    await on.clock.sleep(0.05)
    given_up.cancel()
    results = await asyncio.gather(*(execution.result() for _ in range(5)))
    results.append(await execution.result())
    assert {(result.exit_code, result.stdout) for result in results} == {(4, b"done\n")}


async def the_timeout_of_a_detached_command_ends_its_tree(on: Subject) -> None:
    seconds = forever()
    command = _script(f"echo before; setsid sleep {seconds} & sleep {seconds}")
    execution = await on.sandbox.start(replace(command, timeout=0.5))
    result = await execution.result()
    assert (result.exit_code, result.timed_out, result.stdout) == (None, True, b"before\n")
    await on.dead(seconds)
    assert await _whole(execution) == b"before\n"


async def ending_a_detached_command_ends_its_tree_and_keeps_its_output(on: Subject) -> None:
    seconds = forever()
    execution = await on.sandbox.start(_script(f"echo before; trap '' TERM; setsid sleep {seconds} & sleep {seconds}"))
    await on.until(lambda: alive(seconds) == 2, "both processes run")
    await execution.end()
    assert alive(seconds) == 0
    await execution.end()
    result = await execution.result()
    assert (result.exit_code, result.timed_out, result.stdout) == (None, False, b"before\n")
    assert await _whole(execution) == b"before\n"


async def ending_one_command_spares_the_others(on: Subject) -> None:
    spared, ended = forever(), forever()
    first, second = [await on.sandbox.start(_script(f"sleep {seconds}")) for seconds in (spared, ended)]
    await on.started(spared)
    await on.started(ended)
    await second.end()
    assert (alive(spared), alive(ended)) == (1, 0)
    await first.end()


async def ending_what_has_ended_changes_nothing(on: Subject) -> None:
    execution = await on.sandbox.start(_script("echo all; exit 5"))
    await execution.result()
    await execution.end()
    result = await execution.result()
    assert (result.exit_code, result.stdout) == (5, b"all\n")


async def closing_ends_detached_commands_and_refuses_their_readers(on: Subject) -> None:
    seconds = forever()
    execution = await on.sandbox.start(_script(f"echo begun; setsid sleep {seconds} & sleep {seconds}"))
    await on.until(lambda: alive(seconds) == 2, "both processes run")
    waiting = asyncio.ensure_future(execution.result())
    await on.clock.sleep(0.05)
    await on.sandbox.close()
    assert alive(seconds) == 0
    (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome, AttemptFailure)
    assert (outcome.kind, outcome.code) == (FailureKind.SANDBOX, "SANDBOX_CLOSED")
    await refused(execution.read(), "SANDBOX_CLOSED")
    await refused(on.sandbox.start(_script("true")), "SANDBOX_CLOSED")
    await refused(on.sandbox.attach(execution.id), "SANDBOX_CLOSED")


def _script(text: str, *arguments: str) -> Command:
    return Command(argv=("sh", "-c", text, "sh", *arguments))


async def _whole(execution: Execution, stream: Stream = Stream.STDOUT, *, after: int = 0) -> bytes:
    """What a stream has from byte `after` on, read to its end."""
    found = b""
    while True:
        piece = await execution.read(stream, after=after, wait=_WAIT_SECONDS)
        found += piece.data
        after = piece.cursor
        if piece.complete:
            return found
