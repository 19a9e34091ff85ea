"""The command line: parse, call the Python API, print, exit."""
