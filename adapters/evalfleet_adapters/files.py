"""Files of a turn's input as the APIs of models take them."""

from __future__ import annotations

import base64

from evalfleet.errors import Acceptance, SendFailure
from evalfleet.model.turn import InputFile


def encoded(file: InputFile) -> str:
    """The content as base64."""
    return base64.b64encode(file.data).decode("ascii")


def data_url(file: InputFile) -> str:
    """The content as a `data:` URL."""
    return f"data:{file.media_type};base64,{encoded(file)}"


def plain_text(file: InputFile) -> str:
    """The content as text; bytes that are none are replaced."""
    return file.data.decode("utf-8", "replace")


def refused(file: InputFile, taken: str) -> SendFailure:
    """The failure of a turn with a file that the API has no place for; `taken` says what it takes."""
    return SendFailure(
        f"{file.name}: the API takes no {file.media_type}, only {taken}",
        code="INPUT_UNSUPPORTED",
        acceptance=Acceptance.REJECTED,
    )
