"""The scripts that run inside: what a real shell makes of them, and how their reports are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.processes import run
from evalfleet_sandboxes.inside import Facts, Inner, Report, exports, mark_of, parse_facts, parse_report

LIMIT = 1_000


@pytest.fixture
def inner(tmp_path: Path) -> Inner:
    (tmp_path / "state").mkdir()
    (tmp_path / "work").mkdir()
    return Inner(state=str(tmp_path / "state"), workdir=str(tmp_path / "work"))


async def reported(argv: tuple[str, ...], stdin: bytes = b":\n", limit: int = LIMIT) -> Report:
    report = parse_report((await run(argv, timeout=60.0, stdin=stdin)).stdout, limit)
    assert report is not None
    return report


async def command(inner: Inner, *argv: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Report:
    asked = inner.run(mark_of(1), argv, inner.workdir, limit=LIMIT, stdin=stdin is not None)
    return await reported(asked, exports(env or {}) + (stdin or b""))


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("exit 0", "exit:0"),
        ("exit 3", "exit:3"),
        ("exit 137", "exit:137"),
        ("kill -9 $$", "signal:9"),
        ("kill -15 $$", "signal:15"),
        ("sh -c 'kill -9 $$'; exit 4", "exit:4"),
        ("no-such-program-here", "exit:127"),
    ],
)
async def test_an_exit_code_is_told_from_a_signal(inner: Inner, script: str, how: str) -> None:
    assert (await command(inner, "sh", "-c", script)).how == how


@pytest.mark.parametrize(
    "value", ["", "plain", "a 'b' $c `d` \\n \"e\"", "two\nlines\n\n", "城市 é ぁ", "\udcff\udcfe"]
)
async def test_the_environment_arrives_as_it_is(inner: Inner, value: str) -> None:
    report = await command(inner, "printenv", "-0", "VALUE", env={"VALUE": value})
    assert report.stdout == value.encode("utf-8", "surrogateescape") + b"\0"


def test_a_name_that_no_shell_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'a\.b' is no name"):
        exports({"a.b": "x"})


def test_the_line_of_an_environment_is_ascii_and_one_line() -> None:
    assert exports({"A": "b", "C": "é\n"}) == b"A=b; export A; C=$(printf '\\303\\251\\012.'); C=${C%.}; export C; :\n"


async def test_input_follows_the_environment(inner: Inner) -> None:
    data = bytes(range(256))
    assert (await command(inner, "cat", stdin=data, env={"A": "é"})).stdout == data


async def test_outputs_are_cut_to_head_and_tail_and_counted(inner: Inner) -> None:
    script = "printf begin; head -c 3000000 /dev/zero; printf end; echo small >&2"
    report = await command(inner, "sh", "-c", script)
    assert (report.stdout_bytes, len(report.stdout), report.stderr) == (3_000_008, LIMIT, b"small\n")
    assert report.stdout.startswith(b"begin\0") and report.stdout.endswith(b"\0end")


@pytest.mark.parametrize(("cwd", "how"), [("missing", "nowhere"), ("file", "nofolder")])
async def test_a_cwd_that_is_no_folder_is_reported(inner: Inner, cwd: str, how: str) -> None:
    (Path(inner.workdir) / "file").touch()
    asked = inner.run(mark_of(1), ("true",), f"{inner.workdir}/{cwd}", limit=LIMIT, stdin=False)
    assert (await reported(asked)).how == how


async def test_a_workdir_that_is_gone_is_lost(inner: Inner) -> None:
    Path(inner.workdir).rmdir()
    assert (await command(inner, "true")).how == "lost"


async def test_an_ended_command_is_reported_again(inner: Inner) -> None:
    first = await command(inner, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert await reported(inner.again(mark_of(1), limit=LIMIT)) == first
    assert (await reported(inner.again(mark_of(2), limit=LIMIT))).how == "never"


@pytest.mark.parametrize("asked", ["again", "end"])
async def test_a_command_that_was_given_up_before_it_began_never_runs(inner: Inner, asked: str) -> None:
    await reported(inner.again(mark_of(1), limit=LIMIT) if asked == "again" else inner.end(mark_of(1), limit=LIMIT))
    assert (await command(inner, "touch", "ran")).how == "broken"
    assert not (Path(inner.workdir) / "ran").exists()
    assert (await reported(inner.again(mark_of(1), limit=LIMIT))).how == "never"


async def test_what_is_done_with_is_forgotten(inner: Inner) -> None:
    await command(inner, "true")
    await reported(inner.run(mark_of(2), ("true",), "/", limit=LIMIT, stdin=False, done=(mark_of(1),)))
    assert (await reported(inner.again(mark_of(1), limit=LIMIT))).how == "never"


async def test_a_command_whose_wrapper_was_killed_has_no_known_end(inner: Inner) -> None:
    asked = inner.run(mark_of(1), ("sh", "-c", "echo some; kill -9 $PPID"), "/", limit=LIMIT, stdin=False)
    assert parse_report((await run(asked, timeout=60.0, stdin=b":\n")).stdout, LIMIT) is None
    report = await reported(inner.again(mark_of(1), limit=LIMIT))
    assert (report.how, report.stdout) == ("unknown", b"some\n")


@pytest.mark.parametrize(("after", "expected"), [(0, b"0123456789"), (4, b"456789"), (10, b""), (11, b"")])
async def test_a_stream_is_read_from_any_byte_on(inner: Inner, after: int, expected: bytes) -> None:
    await command(inner, "printf", "0123456789")
    piece = await reported(inner.piece(mark_of(1), "stdout", after=after))
    assert (piece.how, piece.stdout) == ("complete", expected)


async def test_ending_is_refused_outside_of_a_sandbox(inner: Inner) -> None:
    assert (await reported(inner.end(mark_of(1), limit=LIMIT))).how == "alive"


@pytest.mark.parametrize(
    ("output", "read"),
    [
        (b"evalfleet exit:0 2 1 0 7\nabc", True),
        (b"evalfleet exit:0 2 1 0 7\nab", False),
        (b"evalfleet exit:0 2 1 0 7\nabcd", False),
        (b"evalfleet exit:0 2 1 0 7", False),
        (b"evalfleet exit:0 2 1 0\nabc", False),
        (b"", False),
        (b"Error response from daemon\n", False),
    ],
)
def test_a_report_is_whole_or_none(output: bytes, read: bool) -> None:
    assert (parse_report(output, LIMIT) is not None) == read


def test_facts_name_what_is_missing() -> None:
    output = (
        b"evalfleet missing tar\nevalfleet locked /app\nevalfleet place /app\nevalfleet home /root\nevalfleet id 7\n"
        b"evalfleet id 8\nevalfleet ready\n"
    )
    assert parse_facts(output) == Facts(
        missing=("tar",), locked=True, place="/app", home="/root", bash=None, owner=(7, 8), prepared=True
    )
    assert parse_facts(output[:-1].rpartition(b"\n")[0]) is None
