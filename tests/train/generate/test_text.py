"""Text is shown in whole characters, and a stop string never, however the tokens cut it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from corpusmill.train.generate.text import Text, overlap
from tests.train.conftest import tokenizer_json
from tests.train.generate.models import byte_tokenizer

LETTERS = st.text(alphabet="ab\n", max_size=12)


@given(st.lists(LETTERS, max_size=8), st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3))
def test_stop_strings_cut_by_pieces_never_show(pieces: list[str], stop: list[str]) -> None:
    text = Text(Tokenizer.from_str(tokenizer_json().decode()), stop)
    shown = ""
    for piece in pieces:
        shown += text.add_text(piece)
        assert not any(one in shown for one in stop)
        if text.stopped:
            break
    whole = "".join(pieces)
    complete = [(whole.find(one) + len(one), whole.find(one)) for one in stop if one in whole]
    assert text.stopped == bool(complete)
    assert shown + text.end() == (whole[: min(complete)[1]] if complete else whole)


def test_no_more_is_held_back_than_may_begin_a_stop_string() -> None:
    assert overlap("hello END", "ENDING") == 3 and overlap("hello", "END") == 0 and overlap("aab", "ab") == 0


def test_characters_come_whole() -> None:
    """Of one to four tokens each; an unfinished one at the end is left out."""
    tokenizer = byte_tokenizer()
    written = "aü the日本👩x"
    ids = tokenizer.encode(written).ids
    assert len(ids) > len(written)
    text, shown = Text(tokenizer), list[str]()
    for token in ids:
        shown.append(text.add(token))
    assert "".join(shown) + text.end() == written and all("\ufffd" not in piece for piece in shown)
    text = Text(tokenizer)
    assert "".join(map(text.add, tokenizer.encode("a👩").ids[:-1])) + text.end() == "a"


@given(
    st.lists(st.sampled_from(["a", "ü", "é", "日", "本", "👩", "th", "the"]), max_size=10),
    st.lists(st.text(alphabet="aüé日本👩th", min_size=1, max_size=3), max_size=3),
)
def test_stop_strings_cut_by_bytes_never_show(letters: list[str], stop: list[str]) -> None:
    """Tokens end within the characters of a stop string, and beside it."""
    tokenizer, whole = byte_tokenizer(), "".join(letters)
    text, shown = Text(tokenizer, stop), ""
    for token in tokenizer.encode(whole).ids:
        shown += text.add(token)
        assert not any(one in shown for one in stop) and "\ufffd" not in shown
        if text.stopped:
            break
    complete = [(whole.find(one) + len(one), whole.find(one)) for one in stop if one in whole]
    assert text.stopped == bool(complete)
    assert shown + text.end() == (whole[: min(complete)[1]] if complete else whole)
