"""Reads JSON that the caller does not vouch for."""

from __future__ import annotations

import json
import re
from typing import Any

#: A string, or the rest of a text in which one does not end.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)).difference(b"[]{}"))
_ROUNDS = 16


def loads(text: bytes) -> Any:
    """The value of a text.

    Raises:
        ValueError: The text is no JSON, an object has a key twice, or lists and objects nest too
            deep.
    """
    # Python's reader recurses in C, and its limit is too high for a thread with a small stack.
    found = bytearray()
    end = 0
    # `re.sub` would keep a hundred bytes for each string.
    for string in _STRING.finditer(text):
        found += text[end : string.start()].translate(None, _NO_BRACKETS)
        end = string.end()
    found += text[end:].translate(None, _NO_BRACKETS)
    brackets = bytes(found)
    for _ in range(_ROUNDS):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ValueError(f"lists and objects do not end, or nest more than {_ROUNDS} deep")
    return json.loads(text.decode(), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found
