"""One module a command, each with a `command`; `cli/main.py` imports a module when its command is used."""
