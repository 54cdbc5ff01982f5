"""Nothing of a document acts on the terminal or in the page that shows it."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.__main__ import build
from corpusmill.common import escape
from corpusmill.common.escape import spelled
from tests.command_line import CliRunner

ANY = st.text(max_size=200)
BAD = "\x1b]0;x\x07\x9b\u202e\u2066\u200f\ufeff\u00ad\U000e0041\u2028\x85\r\n\t"


def command(*arguments: str | Path) -> str:
    result = CliRunner().invoke(build(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_spelled() -> None:
    assert spelled(BAD) == r"\x1b]0;x\x07\x9b\u202e\u2066\u200f\ufeff\xad\U000e0041\u2028\x85\r\n\t"
    plain = "né 日本\u3000 👩🏽\u200d🚀 \u00a0 می\u200cخواهم \\ '\""  # joiners are part of words
    assert spelled(plain) == plain


@given(ANY)
def test_visible_text_hides_nothing_and_is_inert(text: str) -> None:
    markup = str(escape.visible(text))
    bare = re.sub(r'<span class="ctl">U\+([0-9A-F]{4,6})</span>', lambda m: chr(int(m[1], 16)), markup)
    assert "<" not in bare.translate({ord(c): None for c in text if c in "<>"})
    assert unescape(bare) == text or any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\x00-\x08\x0b-\x1f\x7f]", markup)


@given(ANY)
def test_breakable_adds_places_to_break_and_nothing_else(text: str) -> None:
    assert str(escape.breakable(text)).replace("<wbr>", "") == str(escape.visible(text))


@given(ANY)
def test_markdown_stays_in_its_cell(text: str) -> None:
    for shown in (escape.markdown(text), escape.code(text)):
        assert "\n" not in shown and "\r" not in shown
        assert not re.search(r"(?<!\\)(?:\\\\)*\|", shown)


def test_tokens_of_white_space_can_be_seen() -> None:
    assert escape.token(" the") == "␣the" and escape.token("\n\t") == "⏎⇥"
    assert escape.token(" " * 32) == "␣ × 32" and escape.token("<" * 9) == "&lt; × 9"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of documents whose text, own ids and URLs are full of them."""
    folder = tmp_path_factory.mktemp("hidden")
    lines = [
        {
            "id": f"n{i}{BAD}",
            "text": f"Note {i} \u202eof a kind {BAD}that hides. " * 3,
            "url": f"http://x/{BAD}{i}",
        }
        for i in range(4)
    ]
    lines += [{"id": name, "text": "A line.\r\n" * count} for name, count in (("one", 1), ("two", 2))]
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    command(
        "tokenizer", folder / "in.jsonl", folder / "tokenizer", "--vocab-size", "300", "--workers", "0", "-q"
    )
    options = [
        "--tokenizer",
        folder / "tokenizer/tokenizer.json",
        "--id-column",
        "id",
        "--workers",
        "0",
        "-q",
    ]
    command("shard", folder / "in.jsonl", folder / "out", *options)
    return folder / "out"


def first(document: str, out: Path) -> str:
    """The address of a document's first token."""
    (found,) = json.loads(command("find", document, "--run", out, "--json"))["documents"]
    place = found["places"][0]
    return f"{Path(place['tar']).stem}:{place['block']}:{place['first']}"


def test_what_commands_print(out: Path) -> None:
    address = first("http://x/" + BAD + "0", out)
    (answer,) = json.loads(command("trace", address, "--run", out, "--json"))
    assert "\u202e" in answer["cleaned"]["after"]
    shown = command("trace", address, "--run", out)
    assert r"\u202e" in shown and "own id" in shown
    for text in (
        shown,
        command("find", answer["doc_id"], "--run", out),
        command("why", answer["doc_id"], "--run", out),
    ):
        assert not [char for line in text.split("\n") for char in line if spelled(char) != char], text
        # A line end in an id or a URL begins no line of its own.
        assert all(line.startswith((" ", answer["doc_id"], address)) for line in text.splitlines())


def test_one_edit_and_many(out: Path) -> None:
    assert "by ingest, in 1 place: " in command("trace", first("one", out), "--run", out)
    assert "by ingest, in 2 places: " in command("trace", first("two", out), "--run", out)
