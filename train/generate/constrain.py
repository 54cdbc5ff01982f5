"""Texts that match a regular expression, or follow a JSON schema: the tokens that may come next, by llguidance (Moskal et al.).

The rest of the distribution stays as it is, renormalised. A text that has all that it needs may end, and must where nothing more
fits; one that is cut off by its number of tokens is a beginning of what was asked for. A constraint that takes too much computing is
refused, or ends a text as failed: none comes that does not match.
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
# A mask is computed while all texts wait: at most a few milliseconds each, whatever is asked for. The library's own are 5 times these.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 200_000, "step_lexer_fuel": 50_000, "step_max_items": 20_000, "max_lexer_states": 50_000,
    "max_grammar_size": 200_000, "verbose_errors": False,
}  # fmt: skip


class Constraint:
    """What a text has to be, for any number of texts; `ends`: the tokens that may end one. Raises `UserError` if no text can be, or if the first tokens show that it takes
    too much computing."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, ends: Sequence[int]) -> None:
        self._matcher, self._vocab_size, self.ends = matcher, vocab_size, frozenset(ends)
        first = self._mask(
            matcher
        )  # it may cost a hundred times the next ones, which copies of the matcher begin with
        begins = [token for token in first.nonzero().flatten().tolist() if token not in self.ends]
        if begins:
            self.start()(begins[:1])

    def start(self) -> Callable[[list[int]], Tensor]:
        """`Request.allowed` of one text: given the tokens so far, bool [V], those that may follow. Raises `UserError` where the
        constraint takes too much computing."""
        matcher, known = self._matcher.deep_copy(), list[int]()

        def allowed(tokens: list[int]) -> Tensor:
            if tokens[: len(known)] != known:
                matcher.reset()
                known.clear()
            new = tokens[len(known) :]
            matcher.consume_tokens(new)
            known.extend(new)
            return self._mask(matcher)

        return allowed

    def _mask(self, matcher: LLMatcher) -> Tensor:
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        found = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
        if matcher.is_error():
            reason = _line(matcher.get_error())
            if reason.startswith("NoExtension"):
                raise UserError("no text can be what is asked for")
            raise UserError(f"takes too much computing ({reason}); give a simpler one")
        if not found.any():  # a vocabulary without some byte
            raise UserError("the model has no token with which the text could go on as asked for")
        return torch.from_numpy(found.view(np.bool_))


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
        from llguidance import LLMatcher, LLParserLimits

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LLParserLimits(**LIMITS))
        if matcher.is_error():
            raise UserError(_line(matcher.get_error()))
        return Constraint(matcher, self._vocab_size, self._ends)


def _line(message: str) -> str:
    """A message of the library in one line."""
    found = " ".join(message.replace("<non-verbose/>", "").split())
    return found if len(found) <= LETTERS else f"{found[:LETTERS]} …"
