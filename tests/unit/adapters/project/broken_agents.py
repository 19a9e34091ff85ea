"""A module that can't be imported."""

raise ZeroDivisionError("at import")
