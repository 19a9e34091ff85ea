"""What attempts print goes into logs that nobody guards: the secrets of this process are replaced in it first."""

from __future__ import annotations

import sys

from evalfleet.execution.known_secrets import KnownSecrets
from evalfleet.rewriting import Rewriting


def hide_in_output(secrets: KnownSecrets) -> None:
    """From now on what this process prints shows none of them. Call it once in a process that works for a run."""

    def hidden(text: str) -> str:
        return secrets.redactor.text(text)

    sys.stdout, sys.stderr = Rewriting(sys.stdout, hidden), Rewriting(sys.stderr, hidden)
