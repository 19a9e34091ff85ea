"""`module:attribute` in an arm: finding its file without running it, and loading it."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from evalfleet.errors import ConfigurationError, describe

#: What an entry looks like: a dotted module, a colon, a dotted attribute.
ENTRY_PATTERN = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"


def entry_file(entry: str, where: str) -> Path | None:
    """The Python file of the entry's module; None when it has none (built in, or a bare namespace).

    Parent packages are imported, the module itself is not. Raises ConfigurationError that starts with `where`.
    """
    module = entry.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
    except Exception as error:
        raise ConfigurationError(
            f"{where}: {module} can't be found: {type(error).__name__}: {describe(error)}"
        ) from error
    if spec is None:
        raise ConfigurationError(f"{where}: there is no module {module!r} in the project")
    return Path(spec.origin) if spec.has_location and spec.origin else None


def load_entry(entry: str, where: str) -> object:
    """What the entry names. Raises ConfigurationError that starts with `where` and says what is missing."""
    entry_file(entry, where)
    module, _, attribute = entry.partition(":")
    try:
        found: object = importlib.import_module(module)
    except Exception as error:
        raise ConfigurationError(
            f"{where}: importing {module} raised {type(error).__name__}: {describe(error)}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"{where}: {module} has no {attribute!r}")
        found = getattr(found, name)
    return found
