"""Cells of Arrow tables as JSON: what JSON has no type for gets one text that loses nothing, or is refused.

`arrow` is the pyarrow module, handed in by `planning.tables`, which is its home.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from evalfleet.planning import finite

#: From a cell that is not null to JSON; raises CellFault.
Rendering: TypeAlias = Callable[[Any], Any]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MS_PER_DAY = 86_400_000
_EPOCH = datetime(1970, 1, 1)


class CellFault(ValueError):
    """A cell holds what no row can. `place` leads to it inside of its column."""

    def __init__(self, message: str, *place: str | int) -> None:
        self.place = place
        super().__init__(message)


class UnknownType(ValueError):
    """A type of Arrow that no row can hold."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How cells of a type become JSON: cast to the type `plain`, then rendered one by one, or taken as they are."""

    plain: Any
    render: Rendering | None = None

    def __call__(self, cell: Any) -> Any:
        return cell if cell is None or self.render is None else self.render(cell)


def conversion(arrow: Any, kind: Any) -> Conversion:
    """The conversion of an Arrow type. Raises UnknownType for unions, intervals and maps without text keys."""
    is_a = arrow.types
    if is_a.is_null(kind) or is_a.is_boolean(kind) or is_a.is_integer(kind) or _is_text(arrow, kind):
        return Conversion(kind)
    if is_a.is_floating(kind):
        return Conversion(kind, _number)
    if is_a.is_decimal(kind):
        return Conversion(kind, _decimal)
    if (
        is_a.is_binary(kind)
        or is_a.is_large_binary(kind)
        or is_a.is_fixed_size_binary(kind)
        or is_a.is_binary_view(kind)
    ):
        return Conversion(kind, _base64)
    if is_a.is_temporal(kind) and not is_a.is_interval(kind):
        return _temporal(arrow, kind)
    if is_a.is_dictionary(kind):
        return conversion(arrow, kind.value_type)
    if isinstance(kind, arrow.BaseExtensionType):
        stored = conversion(arrow, kind.storage_type)
        return Conversion(stored.plain, _uuid) if kind.extension_name == "arrow.uuid" else stored
    return _nested(arrow, kind)


def _is_text(arrow: Any, kind: Any) -> bool:
    return arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind)


def _temporal(arrow: Any, kind: Any) -> Conversion:
    """Times as the whole numbers that are stored: Python's own types stop at microseconds."""
    is_a = arrow.types
    if is_a.is_date32(kind):
        return Conversion(arrow.int32(), lambda days: _day(days).isoformat())
    if is_a.is_date64(kind):
        return Conversion(arrow.int64(), lambda ms: _day(ms // _MS_PER_DAY).isoformat())
    per_second = _PER_SECOND[kind.unit]
    if is_a.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return Conversion(arrow.int64(), lambda value: _instant(value, per_second) + zone)
    if is_a.is_duration(kind):
        return Conversion(arrow.int64(), lambda value: _duration(value, per_second))
    return Conversion(
        arrow.int32() if is_a.is_time32(kind) else arrow.int64(),
        lambda value: _instant(value, per_second).partition("T")[2],
    )


def _nested(arrow: Any, kind: Any) -> Conversion:
    is_a = arrow.types
    if is_a.is_struct(kind):
        return _struct(arrow, kind)
    if is_a.is_map(kind) and _is_text(arrow, (key := conversion(arrow, kind.key_type)).plain):
        item = conversion(arrow, kind.item_type)
        return Conversion(arrow.map_(key.plain, item.plain), lambda pairs: _pairs(pairs, item))
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return _list(arrow, kind)
    raise UnknownType(str(kind))


def _list(arrow: Any, kind: Any) -> Conversion:
    item = conversion(arrow, kind.value_type)
    if arrow.types.is_fixed_size_list(kind):
        plain = arrow.list_(item.plain, kind.list_size)
    else:
        plain = (arrow.large_list if arrow.types.is_large_list(kind) else arrow.list_)(item.plain)
    return Conversion(plain, None if item.render is None else lambda cells: _items(cells, item))


def _struct(arrow: Any, kind: Any) -> Conversion:
    fields = {field.name: conversion(arrow, field.type) for field in kind}
    if len(fields) != kind.num_fields:
        raise UnknownType(f"{kind}, with two fields of one name,")
    plain = arrow.struct([(name, field.plain) for name, field in fields.items()])
    if all(field.render is None for field in fields.values()):
        return Conversion(plain)
    return Conversion(plain, lambda cell: {name: _within(name, fields[name], item) for name, item in cell.items()})


def _items(cells: list[Any], item: Conversion) -> list[Any]:
    return [_within(index, item, cell) for index, cell in enumerate(cells)]


def _pairs(pairs: list[tuple[str, Any]], item: Conversion) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, cell in pairs:
        if key in found:
            raise CellFault(f"the key {key!r} stands twice in one map")
        found[key] = _within(key, item, cell)
    return found


def _within(part: str | int, convert: Conversion, cell: Any) -> Any:
    try:
        return convert(cell)
    except CellFault as fault:
        raise CellFault(str(fault), part, *fault.place) from None


def _number(cell: float) -> float:
    if not math.isfinite(cell):
        raise CellFault(finite.REFUSAL)
    return cell


def _decimal(cell: Decimal) -> str:
    return format(cell, "f")


def _base64(cell: bytes) -> str:
    return base64.b64encode(cell).decode("ascii")


def _uuid(cell: bytes) -> str:
    digits = cell.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _day(days: int) -> date:
    return _since_epoch(days * 86_400).date()


def _instant(value: int, per_second: int) -> str:
    seconds, fraction = divmod(value, per_second)
    return _since_epoch(seconds).isoformat() + _fraction(fraction, per_second)


def _duration(value: int, per_second: int) -> str:
    seconds, fraction = divmod(abs(value), per_second)
    return f"{'-' if value < 0 else ''}PT{seconds}{_fraction(fraction, per_second)}S"


def _fraction(fraction: int, per_second: int) -> str:
    """`.05` of a second; nothing when it is whole."""
    return f".{fraction:0{len(str(per_second)) - 1}d}".rstrip("0") if fraction else ""


def _since_epoch(seconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise CellFault("a time beyond the years 1 to 9999") from None
