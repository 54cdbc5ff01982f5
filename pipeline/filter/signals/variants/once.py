"""What several signals of one tool share is computed once for a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from corpusmill.pipeline.filter.text.view import TextView

Result = TypeVar("Result")


def once(compute: Callable[[TextView], Result]) -> Callable[[TextView], Result]:
    """The function, with its result kept on the view (as a `cached_property` would) and freed with it."""
    key = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def kept(view: TextView) -> Result:
        held = vars(view)
        if key not in held:
            held[key] = compute(view)
        found: Result = held[key]
        return found

    return kept
