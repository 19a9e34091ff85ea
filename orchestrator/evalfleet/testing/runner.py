"""pytest, which the sandbox suite is written for; evalfleet itself runs without it."""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ImportError("the sandbox suite needs pytest: pip install 'evalfleet[testing]'") from error

__all__ = ["pytest"]
