"""The commands that a shell text names, read without guessing what the shell would compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

#: With one of these the text alone does not say which commands run.
_UNREADABLE = ("`", "(", ")", "{", "}", "\\", "<<", "#")
_COMPUTED = frozenset("$*?[]~!")
_SEPARATORS = frozenset(";&|\n")
_BLANKS = frozenset(" \t\r")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})


class Word(NamedTuple):
    """One word of a command; not literal when the shell may put something else in its place."""

    text: str
    literal: bool = True


Command: TypeAlias = tuple[Word, ...]


def commands_of_argv(argv: tuple[str, ...]) -> list[Command] | None:
    """The commands of an argument vector, looking into `bash -c text`; None when they can't be read."""
    if argv[0].rpartition("/")[2] in _SHELLS and len(argv) > 1:
        return commands_of_text(argv[2]) if len(argv) == 3 and argv[1] in ("-c", "-lc") else None
    return [tuple(Word(text) for text in argv)]


def commands_of_text(text: str) -> list[Command] | None:
    """The commands of a shell text in order; None when they can't be read from it."""
    if any(mark in text for mark in _UNREADABLE):
        return None
    scan = _Scan()
    for character in text:
        scan.read(character)
    return scan.finish()


@dataclass(slots=True)
class _Scan:
    """Reads a text character by character into words and commands."""

    commands: list[Command]
    words: list[Word]
    word: str | None
    literal: bool
    quote: str | None

    def __init__(self) -> None:
        self.commands, self.words = [], []
        self.word, self.literal, self.quote = None, True, None

    def read(self, character: str) -> None:
        if self.quote is not None:
            self._quoted(character)
        elif character in "'\"":
            self.quote, self.word = character, self.word or ""
        elif character in _BLANKS:
            self._end_word()
        elif character in _SEPARATORS and not self._redirects(character):
            self._end_command()
        else:
            self._add(character, computed=character in _COMPUTED)

    def finish(self) -> list[Command] | None:
        if self.quote is not None:
            return None
        self._end_command()
        return self.commands

    def _quoted(self, character: str) -> None:
        if character == self.quote:
            self.quote = None
        else:
            self._add(character, computed=self.quote == '"' and character in "$!")

    def _redirects(self, character: str) -> bool:
        """Whether `&` belongs to `2>&1` rather than ending a command."""
        return character == "&" and self.word is not None and self.word.endswith((">", "<"))

    def _add(self, character: str, *, computed: bool) -> None:
        self.word = (self.word or "") + character
        self.literal = self.literal and not computed

    def _end_word(self) -> None:
        if self.word is not None and (self.words or not _is_assignment(self.word)):
            self.words.append(Word(self.word, self.literal))
        self.word, self.literal = None, True

    def _end_command(self) -> None:
        self._end_word()
        if self.words:
            self.commands.append(tuple(self.words))
        self.words = []


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
