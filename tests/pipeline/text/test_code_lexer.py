"""Tokens of source code: the kernel equals the rules in plain Python for any bytes, and what must make no difference does not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality import plain_code
from corpusmill.pipeline.text.buffers import view
from corpusmill.pipeline.text.code_lexer import lex
from corpusmill.pipeline.text.code_marks import IDENTIFIER, LITERAL_STRING, NUMBER, WORD, hash_word, lexicon
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, mix64

PIECES = [
    "/*", "*/", "//", "#", "# ", "--", "-- ", "--[[", "]]", "<!--", "-->", ";", "%", "(* ", "*)", "{- ", "-}", "=pod",
    "=cut", "\n=cut\n", '"', "'", "`", '"""', "'''", "\\", "\n", "\r\n", "\n", " ", "\t", "\x00", "def", "if", "else", "endif",
    "#include <a>", "#else:", "#if x", "#define f(x) #x \\\n", "#[derive]", "#!/bin/sh", "#fff;", "a", "b1", "x.match", "b'",
    "r\"", "u8'", "1", "0x1F", "1e-5", "2.5", "1..2", "1'000", "<'a>", "&'b ", "don't", ":", "{", "}", "(", ")", "[", "]", ",",
    "=", "+", "é", "漢", "\u2028", "word " * 20, '"' + "long text " * 9 + '"', "a:\n", "b;\n", "x // 2", "\\'", "a/*", "/*/",
]  # fmt: skip
SOURCES = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
NAMES = {1: b"<string>", 2: b"<number>", 3: b"<name>", 4: b"<word>"}


def kinds(text: str) -> list[int]:
    return found(text)[0]


def found(text: str) -> tuple[list[int], list[int]]:
    """Normalised and written tokens of the kernel, the text in the middle of others."""
    offsets, data = view(pa.array(['"/*', text, '*/"'], pa.large_string()))
    small = np.empty(1, np.uint64)
    normal, written, count = lex(data, offsets[1], offsets[2], lexicon(), small, small.copy())
    return normal[:count].tolist(), written[:count].tolist()


def plain(text: str) -> tuple[list[int], list[int]]:
    """The same by `plain_code`, hashed."""
    normal, written = [], []
    for token in plain_code.tokens(text):
        kind = {name: number for number, name in NAMES.items()}.get(token.kind)
        word = kind is not None or token.kind[:1].isalpha()
        value = hash_word(token.written) if word else int(mix64(np.uint64(256 + token.written[0])))
        normal.append(kind or value)
        written.append(value)
    return normal, written


@settings(max_examples=400)
@given(st.one_of(SOURCES, st.text(max_size=60)))
@example("a\n=pod\nx\n=cut\ny")
@example('"\\')
@example("'\\\n'\\\n'")
def test_the_kernel_equals_the_plain_rules_on_any_text(text: str) -> None:
    assert found(text) == plain(text)


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("x = a // 2  # half", "N = N"),  # a comment, as long as nothing says that it is Python
        ("def f(a):\n    return a // 2  # half", "def N ( N ) : return N / / 1"),
        ("case x: {\n f(); // call\n}", "case N : { N ( ) }"),
        ('f("a" "b", \'c\', `d`)', "N ( S S S )"),
        ("f(b\"a\" u8'b')", "N ( S )"),
        ('def f():\n    """Doc\n\n    more"""\n    return 1', "def N ( ) : return 1"),
        ('x = """text"""', "N = S"),
        ("fn f<'a, 'b>(x: &'a str) {}", "fn N < N N > ( N : & N N ) { }"),
        ("#include <a>\nint x; /* c */ # c", "# N < N > int N"),
        ("#pragma once\n  # define A(b) #b\n", "# pragma N # define N ( N ) # N"),
        ("#else:\n#if a:\nx", "N"),
        ("#[test]\n#![a]\nx", "# [ N ] # ! [ N ] N"),
        ("SELECT a -- b\nFROM c;", "N N N N"),
        ("i--; --i; a--b", "N - - - - N N - - N"),
        ("--[[ a\nb ]] c -- d", "N"),
        ("; lisp\n(f x)", "( N N )"),
        ("a <!-- b\nc --> d {- e -} f (* g *) h", "N N N N"),
        ("url: http://x.y/z", "N : N : / / N . N / N"),
        ("rm build/*.o\nls */", "N N / * . N N * /"),
        ("don't stop", "N N N"),
        ("color: #fff; # c", "N : # N"),
        ("1..5 0x1F 1e-5 1_000 1'000", "1 . . 1 1 1 1 1"),
        ("a \\\n  + b,\n", "N + N"),
        ('"unclosed\nx', '" N N'),
        ("=head1 A\ntext\n=cut\nx", "N"),
        ("a.class b.match(c)", "N . N N . N ( N )"),
    ],
)
def test_what_gives_tokens_and_what_does_not(source: str, tokens: str) -> None:
    short = {b"<name>": "N", b"<number>": "1", b"<string>": "S"}
    shown = " ".join(short.get(token.kind, token.kind.decode()) for token in plain_code.tokens(source))
    assert shown == tokens and found(source) == plain(source)


def test_a_long_string_is_data_and_a_short_one_is_not() -> None:
    short = '"' + "a" * 64 + '"'
    assert kinds(short) == kinds("''") == [LITERAL_STRING]
    text = '"' + "x" * 64 + ' two words"'
    assert found(text) == (
        [LITERAL_STRING, WORD, WORD],
        [found(text)[1][0], hash_word(b"two"), hash_word(b"words")],
    )
    halves = '"' + "x" * 30 + '"\n   # why\n  "' + "x" * 34 + ' two words"'
    assert found(halves) == found(text)


NAME = st.sampled_from(["a", "b", "value", "index", "_x", "Total", "größe"])
VALUE = st.sampled_from(["1", "0x2f", "1.5e3", '"text"', "'c'", '"it\\"s // no comment"', "'# none'"])
EXPRESSION = st.recursive(
    NAME | VALUE,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "==", "&&", "<", "*"]), inner).map(" ".join)
        | st.tuples(NAME, st.lists(inner, max_size=2)).map(lambda call: f"{call[0]}({', '.join(call[1])})")
    ),
    max_leaves=4,
)
STATEMENT = st.one_of(
    st.tuples(NAME, EXPRESSION).map(lambda parts: f"{parts[0]} = {parts[1]};"),
    EXPRESSION.map(lambda value: f"return {value};"),
    st.tuples(EXPRESSION, NAME, EXPRESSION).map(
        lambda parts: f"if ({parts[0]}) {{\n{parts[1]} = {parts[2]};\n}}"
    ),
)
PROGRAM = st.lists(STATEMENT, min_size=1, max_size=8)
COMMENT = st.sampled_from(
    ["/* if (a) { \"x' */", "// don't: a = 1;", "/* two\n lines */", "# a 'quote", "-- b = 2;", ""]
)
SPACE = st.sampled_from([" ", "\n", "\t", "\r\n    ", "\n\n"])


@given(PROGRAM, st.data())
def test_comments_and_white_space_between_statements_make_no_difference(
    program: list[str], data: st.DataObject
) -> None:
    other = []
    for statement in program:
        comment, space = data.draw(COMMENT), data.draw(SPACE)
        other.append(f"\n{comment}\n{statement.replace('{ ', '{' + space)}{space}")
    assert found("\n".join(program)) == found("".join(other))


@given(PROGRAM, st.data())
def test_names_make_no_difference_to_normalised_tokens(program: list[str], data: st.DataObject) -> None:
    source = "\n".join(program)
    other = source
    for name in ("value", "index", "_x", "Total", "größe"):
        other = other.replace(name, data.draw(st.sampled_from(["other", "z9", "名前"])))
    assert kinds(source) == kinds(other)


def test_time_is_linear_whatever_is_left_open() -> None:
    """A megabyte of each of what is searched for ahead: the whole takes seconds, squared it would take days."""
    for piece in (
        "a/*",
        "\\'\\\n",
        '\\"',
        "--[[",
        "<!--",
        "(* ",
        "{- ",
        '"""\\',
        "'",
        "#if #if ",
        "=begin\n=",
    ):
        text = piece * (1_000_000 // len(piece)) + "\n*/"
        assert found(text)[0] is not None
    assert int(FNV_BASIS) > WORD > IDENTIFIER > NUMBER
