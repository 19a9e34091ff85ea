"""Values that remember which evidence channel they were read from and how complete it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, SupportsIndex, TypeVar

from evalfleet.model.coverage import Channel, CoverageEntry


class CoveredStr(str):
    """Text read off a turn. It is a `str` everywhere; `channel` and `entry` tell how far to trust it.

    Trimming and changing case keep the coverage; an f-string, a slice or a `+` makes plain text of it.
    """

    __slots__ = ("channel", "entry")
    channel: Channel
    entry: CoverageEntry

    def __new__(cls, text: str, channel: Channel, entry: CoverageEntry) -> CoveredStr:
        self = super().__new__(cls, text)
        self.channel = channel
        self.entry = entry
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return CoveredStr, (str(self), self.channel, self.entry)

    def _like(self, text: str) -> CoveredStr:
        return CoveredStr(text, self.channel, self.entry)

    def strip(self, chars: str | None = None, /) -> CoveredStr:
        return self._like(super().strip(chars))

    def lstrip(self, chars: str | None = None, /) -> CoveredStr:
        return self._like(super().lstrip(chars))

    def rstrip(self, chars: str | None = None, /) -> CoveredStr:
        return self._like(super().rstrip(chars))

    def lower(self) -> CoveredStr:
        return self._like(super().lower())

    def upper(self) -> CoveredStr:
        return self._like(super().upper())

    def casefold(self) -> CoveredStr:
        return self._like(super().casefold())


@dataclass(frozen=True, slots=True, eq=False)
class CoveredValue:
    """Any other value read off a turn. It compares, indexes and iterates like `value` itself.

    What is reached through `[...]` or an attribute carries the same coverage.
    """

    seen: Any
    channel: Channel
    entry: CoverageEntry

    @property
    def value(self) -> Any:
        """The value without its coverage."""
        return self.seen

    def __getitem__(self, key: Any) -> Any:
        return covered(self.seen[key], self.channel, self.entry)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in CoveredValue.__slots__:
            raise AttributeError(name)
        return covered(getattr(self.seen, name), self.channel, self.entry)

    def __iter__(self) -> Iterator[Any]:
        return (covered(item, self.channel, self.entry) for item in self.seen)

    def __len__(self) -> int:
        return len(self.seen)

    def __contains__(self, item: object) -> bool:
        return item in self.seen

    def __bool__(self) -> bool:
        return bool(self.seen)

    def __eq__(self, other: object) -> bool:
        return bool(self.seen == plain(other))

    def __lt__(self, other: Any) -> bool:
        return self.seen < plain(other)

    def __le__(self, other: Any) -> bool:
        return self.seen <= plain(other)

    def __gt__(self, other: Any) -> bool:
        return self.seen > plain(other)

    def __ge__(self, other: Any) -> bool:
        return self.seen >= plain(other)

    def __hash__(self) -> int:
        return hash(self.seen)

    def __str__(self) -> str:
        return str(self.seen)


M = TypeVar("M")


@dataclass(frozen=True, slots=True, eq=False)
class CoveredModel(CoveredValue, Generic[M]):
    """Structured data that was asked for by a schema: JSON as a subject, and by its type as `value`."""

    read: Callable[[], M]

    @property
    def value(self) -> M:
        """The data by its type. What does not fit its schema ends the test body as a failed gate."""
        return self.read()


def covered(value: Any, channel: Channel, entry: CoverageEntry) -> CoveredStr | CoveredValue:
    """`value` with the coverage of the channel it was read from; text stays text."""
    if isinstance(value, (CoveredStr, CoveredValue)):
        return value
    if isinstance(value, str):
        return CoveredStr(value, channel, entry)
    return CoveredValue(value, channel, entry)


def unwrap(value: Any) -> tuple[Any, Channel | None, CoverageEntry | None]:
    """The plain value, with its channel and coverage when it carries them."""
    if isinstance(value, CoveredStr):
        return str(value), value.channel, value.entry
    if isinstance(value, CoveredValue):
        return value.seen, value.channel, value.entry
    return value, None, None


def plain(value: Any) -> Any:
    """The value without its coverage."""
    return value.seen if isinstance(value, CoveredValue) else value
