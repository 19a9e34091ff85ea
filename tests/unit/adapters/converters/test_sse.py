"""Server-sent events, however they are split: OA-04 and the rule for an unterminated last event."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from evalfleet_adapters.converters.sse import ServerSentEvent, SseParser

OA_04 = [
    b'data:{"n":1}\r',
    b"\n\r",
    b"\n: keep-alive\r\n\r\nda",
    b'ta: {"n":"caf\xc3',
    b'\xa9"}\r\n\r\ndata: {"n":\ndata: 3}\n\n',
    b'data: {"n":4}\n',
]


def parse(chunks: list[bytes]) -> tuple[list[ServerSentEvent], ServerSentEvent | None]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)], parser.close()


def test_oa_04_events_survive_any_line_ending_and_split() -> None:
    events, left_over = parse(OA_04)
    assert [json.loads(event.data)["n"] for event in events] == [1, "café", 3]
    assert left_over == ServerSentEvent('{"n":4}', terminated=False)


@given(st.data())
def test_the_split_never_matters(data: st.DataObject) -> None:
    stream = b"".join(OA_04)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(chunks) == parse([stream])


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), min_size=1))
def test_any_line_of_text_comes_back(lines: list[str]) -> None:
    stream = "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    events, left_over = parse([stream[index : index + 1] for index in range(len(stream))])
    assert ([event.data for event in events], left_over) == (["\n".join(lines)], None)


def test_fields_are_read_as_the_standard_says() -> None:
    stream = b"\xef\xbb\xbfid: 7\nevent: delta\ndata:  x\nretry: 10\nunknown: y\n\ndata\n\nevent: empty\n\ndata: z"
    events, left_over = parse([stream])
    assert events == [ServerSentEvent(" x", "delta", "7"), ServerSentEvent("", id="7")]
    assert left_over == ServerSentEvent("z", id="7", terminated=False)


def test_a_comment_alone_is_no_event() -> None:
    assert parse([b": keep-alive\n\n", b":\r\r", b"\n\n\n"]) == ([], None)


def test_a_line_in_a_hundred_thousand_chunks_is_linear() -> None:
    events, _ = parse([b"data: ", *[b"x" * 10] * 100_000, b"\n\n"])
    assert len(events[0].data) == 1_000_000


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert parse([b"data: \xff\n\n"])[0][0].data == "\ufffd"
