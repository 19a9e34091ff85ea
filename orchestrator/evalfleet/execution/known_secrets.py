"""Secrets that are remembered once they were resolved, so that nothing that is kept or printed shows them."""

from __future__ import annotations

from evalfleet.ports import Secrets
from evalfleet.redact import Redactor


class KnownSecrets:
    """Resolves by `inner`. `redactor` replaces what was resolved by now, and what is `hidden` from the beginning."""

    def __init__(self, inner: Secrets, hidden: Redactor) -> None:
        self._inner = inner
        self._values: set[str] = set()
        self.redactor = hidden

    def resolve(self, name: str) -> str:
        value = self._inner.resolve(name)
        if value not in self._values:
            self._values.add(value)
            self.redactor = self.redactor.also(value)
        return value
