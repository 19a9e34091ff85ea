"""Coding agents as programs in the sandbox of an attempt: one frame, and a module for each program."""
