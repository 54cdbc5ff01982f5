"""Which parts of a rendered conversation are answers: by the template's own marks, or by what it adds turn by turn."""

from __future__ import annotations

import pytest

from corpusmill.common.errors import UserError
from corpusmill.train.data.conversations.template import SHIPPED, ChatTemplate, Piece, Unmarked

TALK = [
    {"role": "system", "content": "be brief"}, {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
    {"role": "assistant", "content": " four "},
]  # fmt: skip
EOS = "<|endoftext|>"
# Published models' templates in what matters here: none of them marks answers.
UNMARKED = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama 3": "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim"
    " + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "mistral": "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% else %}{{ m.content + '\n' }}{% endif %}{% endfor %}",
}
CONTROLS = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", EOS)


def answers(pieces: list[Piece]) -> list[tuple[int, str]]:
    return [(piece.answer, piece.text) for piece in pieces if piece.answer is not None]


@pytest.mark.parametrize("name", list(SHIPPED))
def test_shipped_templates_mark_answers_with_what_ends_them(name: str) -> None:
    template = ChatTemplate(SHIPPED[name], EOS)
    pieces, end = template.pieces(TALK), {"plain": EOS, "chatml": "<|im_end|>"}[name]
    blank = " " if name == "plain" else ""
    assert template.marks and answers(pieces) == [(2, f"{blank}two{end}"), (4, f"{blank} four {end}")]
    assert "".join(piece.text for piece in pieces) == template.render(TALK, False)
    # A prompt is what stands before the answer, so that training and generation read the same.
    assert template.render(TALK[:4], True) == "".join(piece.text for piece in pieces[:3])


@pytest.mark.parametrize("name", list(UNMARKED))
def test_answers_of_templates_without_marks_are_what_they_add(name: str) -> None:
    template = ChatTemplate(UNMARKED[name], EOS)
    pieces = template.pieces(TALK, CONTROLS)
    found = answers(pieces)
    assert not template.marks and [number for number, _ in found] == [2, 4]
    assert all(text.strip().startswith(word) for (_, text), word in zip(found, ("two", "four"), strict=True))
    # What ends the turn is learnt, the line feed behind it is not.
    assert all(text.endswith(CONTROLS) for _, text in found)
    assert "".join(piece.text for piece in pieces) == template.render(TALK, False)


def test_marks_and_turns_agree() -> None:
    own, turns = ChatTemplate(SHIPPED["chatml"], EOS), ChatTemplate(UNMARKED["chatml"], EOS)
    assert own.pieces(TALK) == turns.pieces(TALK, CONTROLS)


def test_a_template_that_changes_earlier_turns_is_refused() -> None:
    """As those that leave earlier reasoning out."""
    source = (
        "{% for m in messages %}{{ m.role[:1] }}:{% if loop.last or m.role != 'assistant' %}{{ m.content }}"
        "{% else %}{{ m.content.split('/')[-1] }}{% endif %};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
    )
    turns = [*TALK[1:3], *TALK[3:]]
    turns[1] = {"role": "assistant", "content": "thought/two"}
    with pytest.raises(Unmarked, match="message 1: the template does not write the answer as it is"):
        ChatTemplate(source, EOS).pieces(turns)
    shifted = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(Unmarked, match="is not what it writes for the turns before it"):
        ChatTemplate(shifted, EOS).pieces(TALK)


def test_marks_must_be_those_of_the_answers() -> None:
    for source, why in (
        ("{% generation %}all{% endgeneration %}", "marks 1 answers of 2"),
        (
            "{% for m in messages if m.role == 'assistant' %}{% generation %}{% generation %}{{ m.content }}"
            "{% endgeneration %}{% endgeneration %}{% endfor %}",
            "marks 4 answers of 2",
        ),
    ):
        with pytest.raises(Unmarked, match=why):
            ChatTemplate(source, EOS).pieces(TALK)
    with pytest.raises(Unmarked, match=r"U\+FDD0"):
        ChatTemplate(SHIPPED["plain"], EOS).pieces([*TALK[:4], {"role": "assistant", "content": "\ufdd0"}])


def test_it_is_jinja_in_a_sandbox() -> None:
    with pytest.raises(UserError, match="mine.jinja: line 2: "):
        ChatTemplate("x\n{% for %}", EOS, "mine.jinja")
    for source in ("{{ messages.__class__.__mro__ }}", "{{ ''.__class__.__base__.__subclasses__() }}"):
        with pytest.raises(UserError, match="SecurityError"):
            ChatTemplate(source, EOS).render(TALK, False)
