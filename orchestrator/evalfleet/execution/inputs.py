"""What an author sends, checked before anything leaves: texts, files and a schema of the answer. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from evalfleet.errors import AuthoringError
from evalfleet.model.turn import InputFile, TurnInput

INVALID_SEND = "INVALID_SEND"

#: A JSON Schema, or a pydantic model that has one.
OutputSchema = Mapping[str, Any] | type[BaseModel]


def text_input(text: str, files: Sequence[InputFile], output: OutputSchema | None) -> TurnInput:
    """One send of `text`. Raises AuthoringError when it is none."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - authors need not type-check
        raise AuthoringError(f"send() takes the text to send, not {type(text).__name__}", INVALID_SEND)
    text = str.__str__(text)
    if not files and output is None:
        return TurnInput(text)
    for file in files:
        if not isinstance(file, InputFile):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise AuthoringError(f"files holds InputFile(…) values, not {type(file).__name__}", INVALID_SEND)
    return TurnInput(text, tuple(files), output_schema=_schema(output))


def _schema(output: OutputSchema | None) -> Mapping[str, Any] | None:
    if output is None or isinstance(output, Mapping):
        return output
    if not (isinstance(output, type) and issubclass(output, BaseModel)):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
        raise AuthoringError(f"output takes a pydantic model or a JSON Schema, not {output!r:.80}", INVALID_SEND)
    return output.model_json_schema()
