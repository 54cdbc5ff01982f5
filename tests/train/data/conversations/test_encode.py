"""Tokens of conversations and which of them are labels, beside masks written by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.schemas.conversation_lines import Answer, Line, Wrong
from corpusmill.schemas.conversations import ConversationConfig
from corpusmill.schemas.shards import Target
from corpusmill.train.data.conversations.encode import ConversationEncoder, Document, Encoded
from corpusmill.train.data.conversations.template import SHIPPED, ChatTemplate
from corpusmill.train.data.texts.encoder import load_encoder
from tests.train.generate.models import EOT, byte_tokenizer

DATA = byte_tokenizer().to_str().encode()
PLAIN = load_encoder(DATA, "tokenizer.json")


def encoder(
    template: str = "chatml", length: int = 200, unrelated: bool = False, virtual: int = 0, **config: Any
) -> ConversationEncoder:
    chosen = ConversationConfig(**config)
    return ConversationEncoder(
        DATA, PLAIN, ChatTemplate(SHIPPED[template], EOT), chosen, length, unrelated, virtual
    )


def line(*contents: str, system: str | None = None, kind: Any = "messages") -> Line:
    roles = ("user", "assistant")
    first = [] if system is None else [{"role": "system", "content": system}]
    turns = [{"role": roles[n % 2], "content": c} for n, c in enumerate(contents)]
    return Line(kind, [*first, *turns[:-1]], "", [Answer(turns[-1:])])


def one(found: Encoded | Wrong) -> Document:
    assert isinstance(found, Encoded)
    (document,) = found.documents
    return document


def marked(document: Document) -> str:
    """The text, labels in brackets."""
    edges = [0, *(np.flatnonzero(np.diff(document.targets)) + 1).tolist(), len(document.tokens)]
    text = ""
    for low, high in pairwise(edges):
        part = PLAIN.tokenizer.decode(document.tokens[low:high].tolist(), skip_special_tokens=False)
        text += part if document.targets[low] == Target.context else f"[{part}]"
    return text


def test_the_mask_of_three_turns_is_the_one_written_by_hand() -> None:
    talk = line("one", "the", "in", "two", "er", "six", system="brief")
    assert marked(one(encoder().encode([talk])[0])) == (
        "<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n[the<|im_end|>]\n"
        "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n[two<|im_end|>]\n"
        f"<|im_start|>user\ner<|im_end|>\n<|im_start|>assistant\n[six<|im_end|>]\n{EOT}"
    )
    last = one(encoder(train_on="last").encode([talk])[0])
    assert marked(last).count("[") == 1 and "[six<|im_end|>]" in marked(last)
    document = one(encoder().encode([talk])[0])
    assert (document.chars, document.bytes) == (9, 9)  # without the control tokens
    # The two control tokens are one token each, and none of their letters is encoded.
    assert (document.tokens == PLAIN.tokenizer.token_to_id("<|im_end|>")).sum() == 7


def test_prompts_are_those_of_generation() -> None:
    """What stands before an answer has the tokens that a prompt has."""
    found = one(encoder("plain").encode([line("the", "théin")])[0])
    first = int(np.flatnonzero(found.targets)[0])
    prompt = PLAIN.tokenizer.encode("User: the\n\nAssistant:", add_special_tokens=False).ids
    assert found.tokens[:first].tolist() == prompt
    assert marked(found) == f"User: the\n\nAssistant:[ théin{EOT}]\n\n{EOT}" and found.bytes == 7


def test_lines_without_messages_have_no_template() -> None:
    raw = Line("completion", [], "in the", [Answer([], " end")])
    # No token lies on the border, though " the" + ... might be one.
    assert marked(one(encoder().encode([raw])[0])) == f"in the[ end{EOT}]"
    text = Line("text", [], f"the {EOT} end", [])
    found = one(encoder().encode([text])[0])
    assert marked(found) == f"[the {EOT} end{EOT}]"
    assert (found.tokens == PLAIN.eos_id).sum() == 1  # its name in a text is a text


def test_control_tokens_in_a_message_are_refused() -> None:
    (wrong,) = encoder().encode([line("one<|im_end|>", "two")])
    assert isinstance(wrong, Wrong) and str(wrong) == "messages.0.content: has the control token <|im_end|>"
    (wrong,) = encoder().encode([Line("completion", [], "a", [Answer([], "")])])
    assert isinstance(wrong, Wrong) and "no token would be a label" in str(wrong)


def test_long_conversations_lose_their_oldest_turns() -> None:
    talk = line(*["ab" * 10, "cd" * 10] * 3, system="sys")
    whole = len(one(encoder(length=10**6).encode([talk])[0]).tokens)
    (found,) = encoder(length=whole - 1).encode([talk])
    assert isinstance(found, Encoded) and found.shortened
    text = marked(one(found))
    assert text.startswith("<|im_start|>system\nsys<|im_end|>") and text.count("<|im_start|>user") == 2
    (wrong,) = encoder(length=40).encode([talk])
    assert isinstance(wrong, Wrong) and str(wrong).startswith("its last turn has ")


def test_a_system_prompt_for_those_that_have_none() -> None:
    found = encoder(system="Rule.").encode([line("a", "b"), line("a", "b", system="Own.")])
    first, second = (marked(one(each)) for each in found)
    assert first.startswith("<|im_start|>system\nRule.<|im_end|>") and "Rule." not in second


def test_a_preference_is_two_documents() -> None:
    pair = Line("preference", line("a", "b").messages, "", [
        Answer([{"role": "assistant", "content": "yes"}]),
        Answer([{"role": "assistant", "content": "no"}], kind=Target.rejected),
    ])  # fmt: skip
    (found,) = encoder().encode([pair])
    assert isinstance(found, Encoded) and [set(d.targets.tolist()) for d in found.documents] == [
        {0, 1},
        {0, 2},
    ]
    chosen, rejected = found.documents
    assert chosen.bytes == 3 and rejected.bytes == 0
    feedback = [line(f"q{n}", f"a{n}", kind="feedback") for n in range(3)]
    with_others = encoder(unrelated=True).encode(feedback)
    for number, each in enumerate(with_others):
        assert isinstance(each, Encoded)
        own, other = each.documents
        assert f"q{number}" in marked(own) and f"[a{number}<|im_end|>]" in marked(own)
        assert f"q{number}" in marked(other) and f"[a{(number + 1) % 3}<|im_end|>]" in marked(other)
        assert set(other.targets.tolist()) == {0, Target.unrelated}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200), st.integers(4, 30))
def test_long_texts_are_cut_and_lose_nothing(text: str, length: int) -> None:
    (found,) = encoder(length=length).encode([Line("text", [], text, [])])
    assert isinstance(found, Encoded)
    whole = PLAIN.encode([text])[0].tolist()
    parts = [document.tokens.tolist() for document in found.documents]
    assert all(len(part) <= length and part[-1] == PLAIN.eos_id for part in parts)
    assert [token for part in parts for token in part[:-1]] == whole[:-1]
    labels = [token for d in found.documents for token in d.tokens[d.targets == Target.answer].tolist()]
    assert labels == whole
    assert sum(document.bytes for document in found.documents) >= len(text.encode())
    if len(found.documents) == 1:
        assert found.documents[0].bytes == len(text.encode())


@pytest.mark.parametrize("length", [60, 12])
def test_places_of_virtual_tokens_are_before_each_document(length: int) -> None:
    """Of a conversation, a preference's two documents, and the parts of a text that is cut."""
    pair = Line("preference", [{"role": "user", "content": "u"}], "", [
        Answer([{"role": "assistant", "content": text}], kind=kind) for text, kind in (("a", Target.answer), ("b", Target.rejected))
    ])  # fmt: skip
    text = Line("text", [], "one two three four five", [])
    lines = [text] if length == 12 else [line("a", "b"), pair, text]
    places = encoder(length=length, virtual=3).encode(lines)
    plain = encoder(length=length - 3, virtual=0).encode(lines)
    for found, wanted in zip(places, plain, strict=True):
        assert isinstance(found, Encoded) and isinstance(wanted, Encoded)
        for own, other in zip(found.documents, wanted.documents, strict=True):
            assert len(own.tokens) <= length
            assert own.tokens.tolist() == [PLAIN.eos_id] * 3 + other.tokens.tolist()
            assert own.targets.tolist() == [Target.context] * 3 + other.targets.tolist()
            assert (own.chars, own.bytes) == (other.chars, other.bytes)


def test_characters_of_a_text_that_is_cut() -> None:
    (found,) = encoder(length=8).encode([Line("text", [], "abcdefghijklmnop", [])])
    assert isinstance(found, Encoded)
    assert [document.chars for document in found.documents] == [7, 7, 2]


def test_a_template_that_refuses_is_a_reason() -> None:
    source = "{{ raise_exception('no system') if messages[0].role == 'system' else '' }}" + SHIPPED["chatml"]
    refusing = ConversationEncoder(DATA, PLAIN, ChatTemplate(source, EOT), ConversationConfig(), 200)
    wrong, fine = refusing.encode([line("a", "b", system="s"), line("a", "b")])
    assert isinstance(wrong, Wrong) and "no system" in str(wrong) and isinstance(fine, Encoded)
