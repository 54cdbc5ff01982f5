"""The two ways a command ends badly, each with its exit code and one line for the user."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable


class UserError(Exception):
    """The command or its config is wrong (exit code 2): what, where, what is allowed, what to do."""

    exit_code = 2


class WorkError(Exception):
    """The work itself failed (exit code 1): unreadable input, an unwritable output, a limit exceeded."""

    exit_code = 1


class Diverged(WorkError):
    """The loss of a run is no longer a finite number."""


def place_of(error: BaseException) -> str:
    """`Type at file:line`: without the message, which may hold a part of a user's text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the allowed name closest to `name`, or `""` when none is close."""
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
