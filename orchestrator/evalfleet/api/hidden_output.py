"""What attempts print goes into logs that nobody guards: the secrets of this process are replaced in it first."""

from __future__ import annotations

import sys

from evalfleet.ports import Secrets
from evalfleet.redact import Redactor
from evalfleet.rewriting import Rewriting


class KnownSecrets:
    """Secrets that remembers for this process what was resolved; `redactor` replaces those and what is `hidden`."""

    def __init__(self, inner: Secrets, hidden: Redactor) -> None:
        self._inner = inner
        self._values: set[str] = set()
        self.redactor = hidden

    def resolve(self, name: str) -> str:
        value = self._inner.resolve(name)
        if value not in self._values:
            self._values.add(value)
            self.redactor = self.redactor.also((value,))
        return value


def hide_in_output(secrets: KnownSecrets) -> None:
    """From now on what this process prints shows none of them. Call it once in a process that works for a run."""

    def hidden(text: str) -> str:
        return secrets.redactor.text(text)

    sys.stdout, sys.stderr = Rewriting(sys.stdout, hidden), Rewriting(sys.stderr, hidden)
