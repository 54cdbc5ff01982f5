"""What is to be generated, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from corpusmill.common.errors import UserError, WorkError, place_of

if TYPE_CHECKING:
    from torch import Tensor

    from corpusmill.schemas.generation import Sampling
    from corpusmill.train.generate.sample import Penalties

End = Literal["stop", "length", "context", "cancelled", "failed"]  # failed: `Request.failure` says why


Likeliest = Sequence[tuple[int, float]]  # tokens and their log-probabilities, from the likeliest on


class Event(NamedTuple):
    """A token of a request, or its end (`token` None); with the end "stop" the log-probability of the token that ended it."""

    request: Request
    token: int | None
    end: End | None = None
    log_probability: float | None = (
        None  # of the token, before filters and temperature, if the request wants it
    )
    likeliest: Likeliest = ()


class Scored(NamedTuple):
    """A token of a prompt and its log-probability; None for the first one that the model reads."""

    token: int
    log_probability: float | None
    likeliest: Likeliest = ()


@dataclass(eq=False)
class Request:
    """A prompt and how it is to be continued. `number` is part of its seed: equal requests with equal numbers, equal text.
    Requests of which `prompt` is the same list are read once (`shared`).

    `allowed`: given the tokens so far, a bool tensor [V] of those that may follow, or None for all.
    """

    prompt: list[int]
    sampling: Sampling
    number: int = 0
    allowed: Callable[[list[int]], Tensor | None] | None = None
    ends: frozenset[int] = frozenset()  # tokens that end it, beside the end-of-text token
    likeliest: int | None = (
        None  # how many of the likeliest tokens each event is to name; None: no log-probabilities
    )
    scored: list[Scored] | None = None  # a list: takes the prompt's tokens with their log-probabilities
    adapter: int = 0  # number of the one that the model has beside it for this request; 0: none
    tokens: list[int] = field(default_factory=list)  # generated so far
    cancelled: bool = False
    read: int = 0  # tokens of `window` that the cache has
    window: list[int] = field(
        default_factory=list
    )  # what the model reads: the prompt and the tokens, or their end
    penalties: Penalties | None = None
    failure: UserError | WorkError | None = None  # UserError: what was asked for is the reason

    @property
    def shared(self) -> tuple[int, int, bool, int | None]:
        """What is equal of two requests if the one has read what the other needs: the same list under the same adapter, and the same
        figures of its tokens."""
        return id(self.prompt), self.adapter, self.scored is None, self.likeliest

    def fail(self, error: BaseException) -> None:
        """Note why it cannot go on. Of errors that are not for users, type and place alone: messages may hold texts."""
        self.failure = error if isinstance(error, UserError) else WorkError(place_of(error))
