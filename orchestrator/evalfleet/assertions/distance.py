"""Edit distance between two texts."""

from __future__ import annotations


def levenshtein(left: str, right: str) -> int:
    """The number of single-character edits between two texts.

    Hyyrö's bit-parallel form of Myers' algorithm on Python integers: one pass over the longer text, with the
    whole column of the shorter one in a few machine words each.
    """
    if len(left) < len(right):
        left, right = right, left
    if not right:
        return len(left)
    positions: dict[str, int] = {}
    for index, character in enumerate(right):
        positions[character] = positions.get(character, 0) | 1 << index
    last = 1 << (len(right) - 1)
    mask = (last << 1) - 1
    up, down, distance = mask, 0, len(right)
    for character in left:
        equal = positions.get(character, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        plus = down | (~(diagonal | up) & mask)
        minus = up & diagonal
        if plus & last:
            distance += 1
        elif minus & last:
            distance -= 1
        plus = (plus << 1 | 1) & mask
        minus = (minus << 1) & mask
        up = minus | (~(diagonal | plus) & mask)
        down = plus & diagonal
    return distance


def likeness(left: str, right: str) -> float:
    """1 − distance ÷ length of the longer text, in [0, 1]; two empty texts are alike."""
    longest = max(len(left), len(right))
    return 1.0 if longest == 0 else 1.0 - levenshtein(left, right) / longest
