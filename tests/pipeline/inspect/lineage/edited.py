"""The law of every stage that edits: the text as it came, the edits, and what they wrote make the text as it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def check_edits(before: str, after: str, edits: Sequence[Mapping[str, Any]], writes: bool = False) -> None:
    """Lengths add up, and every character outside of the edits is the same. Without `writes` all edits are cuts."""
    gone: set[int] = set()
    place, end = 0, 0  # in `after`, in `before`
    for edit in sorted(edits, key=lambda edit: (edit["offset"], edit["length"])):
        start, stop, written = edit["offset"], edit["offset"] + edit["length"], edit["written"]
        assert 0 <= start < stop <= len(before) and (written > 0) == writes
        assert not writes or start >= end, "edits that write stand apart"
        if start > end:
            assert before[end:start] == after[place : place + start - end]
            place += start - end
        place += written
        end = max(end, stop)
        gone |= set(range(start, stop))
    assert before[end:] == after[place:]
    assert len(after) == len(before) - len(gone) + sum(edit["written"] for edit in edits)
