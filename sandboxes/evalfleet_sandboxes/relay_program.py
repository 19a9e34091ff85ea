"""What relays need of the image that they run in, and how it is said. Pure."""

from __future__ import annotations

#: The variable that names an image with Python for what can't run in the sandbox's own.
RELAY_IMAGE = "EVALFLEET_RELAY_IMAGE"
#: The program that the script needs, and what to do where an image has not got it.
PYTHON = "python3"
REMEDY = f"its image needs {PYTHON} (3.7 or newer), or {RELAY_IMAGE} names an image that has it"
#: The first process of a container that relays run in.
WAITING = (PYTHON, "-I", "-S", "-c", "import signal; signal.pause()")
