"""A case as its row holds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evalfleet.model.case import Case
from evalfleet.model.verdict import Style

#: Columns of `cases` that `read_case` takes, in this order; its arm's name comes second, where the caller finds it.
WIDTH = 12


def read_case(row: Sequence[Any], arm: str) -> Case:
    """The case of a row that begins with `ordinal, arm, eval_id, definition, style, repetition, content, fingerprint,
    row, variants, tags, external`; `arm` is the name of its arm."""
    ordinal, _, eval_id, definition, style, repetition, content, fingerprint = row[:8]
    data, variants, tags, external = row[8:WIDTH]
    return Case(
        ordinal=ordinal,
        arm=arm,
        eval_id=eval_id,
        definition=definition,
        style=Style(style),
        repetition=repetition,
        content=content.hex(),
        fingerprint=None if fingerprint is None else fingerprint.hex(),
        row=data,
        variants={} if variants is None else json.loads(variants),
        tags=() if tags is None else tuple(tags),
        external=external,
    )
