"""Constrained texts: all that come match; their tokens have the model's distribution over what is allowed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import Tokenizer

from corpusmill.common.errors import UserError
from corpusmill.schemas.generation import Sampling
from corpusmill.train.commands.generation import read_schema
from corpusmill.train.generate.constrain import Constraint, Constraints
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import Opened, pieces
from corpusmill.train.generate.request import Request
from tests.train.conftest import tokenizer_json
from tests.train.generate.models import BYTES, EOS, byte_tokenizer, opened

ALL = Sampling(max_tokens=200, temperature=1.3, top_k=0, top_p=1.0)


@pytest.fixture(scope="module")
def made() -> Constraints:
    return Constraints(byte_tokenizer(), BYTES, [EOS])


def texts(model: Opened, constraint: Constraint, count: int = 50) -> Iterator[tuple[str, str]]:
    found: dict[int, str] = {}
    for piece in pieces(model, ["the "] * count, ALL, rows=16, constraint=constraint):
        found[piece.request.number] = found.get(piece.request.number, "") + piece.text
        if piece.end:
            yield found[piece.request.number], piece.end


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
        r"(the|in|ther)( (the|er)){0,4}\.",
        r"[àéü日本👩]{3,6}",
        r"(?s).{5,20}",
    ],
)
def test_texts_match_the_expression(made: Constraints, pattern: str) -> None:
    """Of the third, each character is several tokens."""
    found = list(texts(opened(scale=1.0), made.regex(pattern)))
    assert len(found) == 50 and {end for _, end in found} == {"stop"}
    assert all(re.fullmatch(pattern, text) for text, _ in found)
    assert len({text for text, _ in found}) > 5


def test_texts_follow_the_schema(made: Constraints) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6}, "size": {"type": "integer", "minimum": 3, "maximum": 40},
            "tags": {"type": "array", "items": {"enum": ["ü", "b"]}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "size", "tags"], "additionalProperties": False,
    }  # fmt: skip
    found = [
        json.loads(text) for text, end in texts(opened(scale=1.0), made.json_schema(schema)) if end == "stop"
    ]
    assert len(found) >= 45
    for value in found:
        assert set(value) == {"name", "size", "tags"} and len(value["name"]) <= 6
        assert type(value["size"]) is int and 3 <= value["size"] <= 40
        assert 1 <= len(value["tags"]) <= 3 and set(value["tags"]) <= {"ü", "b"}


def test_tokens_have_the_model_s_distribution_over_what_is_allowed(made: Constraints) -> None:
    model, constraint = opened(), made.regex(r"[a-e]|the|in|é")
    engine = Engine(model.runner, rows=64)
    requests = [
        Request([EOS, 50], ALL.model_copy(update={"temperature": 1.0}), n, constraint.start())
        for n in range(4000)
    ]
    for request in requests:
        engine.submit(request)
    list(engine.run())
    with torch.no_grad():
        logits = model.runner.model(torch.tensor([[EOS, 50]]))[0, -1, :BYTES]
    tokenizer = model.tokenizer
    begins = [tokenizer.token_to_id(one) for one in [*"abcde", "t", "th", "the", "i", "in", "Ã"]]
    wanted = logits[begins].double().softmax(-1).numpy()
    seen = np.array([sum(request.tokens[0] == token for request in requests) for token in begins])
    assert seen.sum() == len(requests)
    assert stats.chisquare(seen, wanted * seen.sum()).pvalue > 0.001


def test_a_mask_costs_less_than_a_step(made: Constraints) -> None:
    allowed = made.json_schema({"type": "object"}).start()
    tokens = byte_tokenizer().encode('{"a": [1, {"b": "in the"}], "c": null').ids
    began = time.perf_counter()
    for count in range(len(tokens) + 1):
        assert bool(allowed(tokens[:count]).any())
    assert (time.perf_counter() - began) / len(tokens) < 0.01  # on a busy machine; it is some 30 µs


def test_another_text_begins_anew(made: Constraints) -> None:
    allowed = made.regex("ab|cd").start()
    a, b, c = (byte_tokenizer().token_to_id(one) for one in "abc")
    assert allowed([])[[a, c]].all() and allowed([a])[b] and allowed([c])[b].logical_not()
    assert allowed([a, b]).nonzero().flatten().tolist() == [EOS]


HUGE = "((a{100}){100}){100}"  # compiled in a millisecond


def test_what_takes_too_much_computing_is_refused(made: Constraints) -> None:
    with pytest.raises(UserError, match="takes too much computing .*; give a simpler one"):
        made.regex(HUGE)
    with pytest.raises(UserError, match="no text can be what is asked for"):
        made.json_schema({"$ref": "#"})


def test_a_text_that_meets_such_a_part_later_fails_and_never_stops_as_if_it_matched(
    made: Constraints,
) -> None:
    model = opened(scale=1.0)
    prompts, found = ["a", "b"], dict[int, str | None]()
    for piece in pieces(model, prompts, ALL, constraint=made.regex(f"[bc]{{3}}{HUGE}")):
        if piece.end:
            found[piece.request.number] = piece.end
            assert isinstance(piece.request.failure, UserError)
    assert found == {0: "failed", 1: "failed"}


def test_mistakes_are_one_line(made: Constraints, tmp_path: Path) -> None:
    for wrong in ("(", "[z-a]", r"(a)\1"):
        with pytest.raises(UserError) as error:
            made.regex(wrong)
        assert "\n" not in str(error.value)
    schemas: list[dict[str, Any]] = [
        {"type": "nothing"},
        {"type": "array", "uniqueItems": True},
    ]
    for schema in schemas:
        with pytest.raises(UserError) as error:
            made.json_schema(schema)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="constraints need a byte-level tokenizer"):
        Constraints(Tokenizer.from_str(tokenizer_json().decode()), 96, [0])
    with pytest.raises(UserError, match="is not a JSON object"):
        (tmp_path / "schema.json").write_text("[]")
        read_schema(tmp_path / "schema.json")
