"""The console script: hands a run's command line to the standby of `orchestrate up`, or carries it out itself.

Nothing heavy is imported before that is known.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from evalfleet.errors import ConfigurationError, InfrastructureError
from evalfleet.handover import CommandLine, hand_over, standby_socket
from evalfleet.settings import Settings

#: What goes to a Ray that is up, unless one of these options says otherwise.
_ON_RAY = ("submit", "resume")
_ELSEWHERE = ("--inline", "--address", "--detach", "--help", "-h")
_INFRASTRUCTURE = 4
_CANCELLED = 130


def main() -> None:
    """Run the command line of this process."""
    try:
        code = _handed_over(sys.argv[1:])
    except InfrastructureError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(_INFRASTRUCTURE)
    except KeyboardInterrupt:
        sys.exit(_CANCELLED)
    if code is not None:
        sys.exit(code)
    importlib.import_module("evalfleet.cli.main").main()  # takes longer than all of the above


def _handed_over(arguments: Sequence[str]) -> int | None:
    """The exit code of the standby, None when this process has to do it."""
    if sys.gettrace() is not None or not may_be_handed_over(arguments):
        return None
    try:
        return hand_over(standby_socket(Settings.from_environment()), CommandLine.here(list(arguments)))
    except (ConfigurationError, OSError):
        return None  # said better by the command itself


def may_be_handed_over(arguments: Sequence[str]) -> bool:
    """Whether this command line makes a run on the Ray that is up."""
    return arguments[:1] != [] and arguments[0] in _ON_RAY and not _names(arguments[1:]) & set(_ELSEWHERE)


def _names(arguments: Sequence[str]) -> set[str]:
    return {argument.partition("=")[0] for argument in arguments}


if __name__ == "__main__":
    main()
