"""Texts that match a regular expression, or follow a JSON schema: the tokens that may come next, by llguidance (Moskal et al.).

The rest of the distribution stays as it is, renormalised. A text that has all that it needs may end, and must where nothing more
fits; one that is cut off by its number of tokens is a beginning of what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import UserError

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from tokenizers import Tokenizer

# Between the parts of JSON: a weak model would go on with blanks for ever.
WHITESPACE = r"[\x20\x0A]"
LETTERS = 300  # of a message of the library


class Constraint:
    """What a text has to be, for any number of texts."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, ends: Sequence[int]) -> None:
        self._matcher, self._vocab_size, self._ends = matcher, vocab_size, list(ends)

    def start(self) -> Callable[[list[int]], Tensor]:
        """`Request.allowed` of one text: given the tokens so far, bool [V], those that may follow."""
        matcher, known = self._matcher.deep_copy(), list[int]()

        def allowed(tokens: list[int]) -> Tensor:
            if tokens[: len(known)] != known:
                matcher.reset()
                known.clear()
            new = tokens[len(known) :]
            matcher.consume_tokens(new)
            known.extend(new)
            bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            found = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
            if matcher.is_error() or not found.any():  # nothing fits: a vocabulary without some byte
                found[:] = 0
                found[self._ends] = 1
            return torch.from_numpy(found.view(np.bool_))

        return allowed


class Constraints:
    """Makes constraints for the texts of one tokenizer. `ends`: the tokens that end a text, the end-of-text token first.

    Raises `UserError` without llguidance, or for a tokenizer of which it does not know the bytes.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, ends: Sequence[int]) -> None:
        try:
            from llguidance import LLTokenizer
        except ModuleNotFoundError:
            raise UserError("constraints need llguidance: pip install 'corpusmill[constrain]'") from None
        self._vocab_size, self._ends = vocab_size, ends
        try:
            self._tokenizer = LLTokenizer(tokenizer.to_str(), n_vocab=vocab_size, eos_token=list(ends))
        except ValueError as error:
            raise UserError(
                f"constraints need a byte-level tokenizer; of this one llguidance does not know the bytes: {_line(str(error))}"
            ) from None

    def regex(self, pattern: str) -> Constraint:
        """The whole text matches `pattern` (syntax of Rust's regex crate, without anchors). Raises `UserError`."""
        from llguidance import LLMatcher

        return self._made(LLMatcher.grammar_from_regex(pattern))

    def json_schema(self, schema: dict[str, Any]) -> Constraint:
        """The text is JSON that follows `schema`. Raises `UserError` for a keyword that is not supported."""
        from llguidance import LLMatcher

        return self._made(
            LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": WHITESPACE})
        )

    def _made(self, grammar: str) -> Constraint:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise UserError(_line(matcher.get_error()))
        return Constraint(matcher, self._vocab_size, self._ends)


def _line(message: str) -> str:
    """A message of the library in one line."""
    found = " ".join(message.split())
    return found if len(found) <= LETTERS else f"{found[:LETTERS]} …"
