"""The tokens and shingles of the preset `code` in plain Python, by regular expressions: a second opinion on the kernels.

The rules are those stated in `text/code_lexer.py` and `text/code_shingles.py`; of the package only lists of words and numbers
are shared. Tokens are bytes themselves, not hashes of them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from corpusmill.pipeline.text.code_lexer import LONG
from corpusmill.pipeline.text.code_marks import DIRECTIVES, KEYWORDS, POD, WEAK
from corpusmill.pipeline.text.code_shingles import LEAST, OFTEN, STRUCTURE

_W = rb"[A-Za-z0-9_$\x80-\xff]"  # what words are made of
_S = rb"[\x00-\x09\x0b\x0c\x0e-\x20\x7f]"  # white space, but no line break
_SPACES = re.compile(_S + rb"+")
_ONE_OF, _WEAK, _PODS = ("|".join(sorted(words)).encode() for words in (DIRECTIVES, WEAK, POD))
_WORD = re.compile(rb"[A-Za-z_$\x80-\xff]" + _W + rb"*")
_PREFIX = re.compile(rb"[brufl8BRUFL]{1,2}(?=[\"'])")
_DECIMAL = re.compile(rb"[0-9](?:[eE][+-](?=[0-9])|" + _W + rb"|[.'](?=[0-9]))*")
_HEXADECIMAL = re.compile(rb"0[xX](?:" + _W + rb"|[.'](?=[0-9]))*")
_ON_LINE = {mark: re.compile(rb"(?s)(?:\\.|[^\\\r\n" + mark + rb"])*" + mark) for mark in (b'"', b"'", b"`")}
_FAILED = {mark: re.compile(rb"(?s)(?:\\.|[^\\\r\n" + mark + rb"])*\\?") for mark in (b'"', b"'", b"`")}
_THREE = {mark: re.compile(rb"(?s)(?:\\.|(?!" + mark * 3 + rb")[^\\])*" + mark * 3) for mark in (b'"', b"'")}
_REST = re.compile(rb"[^\r\n]*")
_DIRECTIVE = re.compile(
    rb"#(?:!?\[|" + _S + rb"*(?:" + _ONE_OF + rb")(?!" + _W + rb"|:)|"
    rb"(?:" + _WEAK + rb")(?!" + _W + rb")(?![^\r\n]*:" + _S + rb"*(?:[\r\n]|\Z)))"
)
_COLOUR = re.compile(rb"#[0-9A-Fa-f]{3,8}[;,)}!]")
_DASHES = re.compile(rb"-{2,}(?:" + _S + rb"|[\r\n]|\Z)")
_SIGNED = re.compile(rb"([;%])(?:\1|[A-Za-z_$\x80-\xff]|" + _S + rb")")
_POD = re.compile(rb"=(?:" + _PODS + rb")(?!" + _W + rb")")
_POD_END = re.compile(rb"[\r\n]=(?:cut|end)[^\r\n]*")
_LIFETIME = re.compile(rb"'" + _W + rb"+(?!'|" + _W + rb")")
_BLOCKS = ((b"--[[", b"]]"), (b"<!--", b"-->"), (b"(*", b"*)"), (b"{-", b"-}"))

_VALUES = (b"<name>", b"<string>", b"<number>", b"<word>")


class Token(NamedTuple):
    """One token: its kind (`_VALUES`, or the keyword or byte itself) and how it is written."""

    kind: bytes
    written: bytes


class Lexer:
    """Reads one text; `tokens` is the result."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.tokens: list[Token] = []
        self.first, self.on_line, self.directive, self.joined, self.open_three = (
            True,
            False,
            False,
            False,
            False,
        )
        self.colons = self.braces = 0
        self.string = 0  # the place of the last string among the tokens
        self.punctuation = b""
        self.unclosed = dict.fromkeys(_ON_LINE, 0)
        while self.at < len(data):
            self.step()

    @property
    def last(self) -> bytes:
        """The kind of the last token that is no word of a string."""
        kinds = (token.kind for token in reversed(self.tokens) if token.kind != b"<word>")
        return next(kinds, b"")

    def before(self) -> bytes:
        """The byte before."""
        return self.data[self.at - 1 : self.at] or b"\n"

    def step(self) -> None:
        """One byte, token or comment."""
        byte = self.data[self.at : self.at + 1]
        if space := _SPACES.match(self.data, self.at):
            self.at = space.end()
        elif byte in b"\r\n":
            if self.on_line:
                self.colons += self.punctuation == b":"
                self.braces += self.punctuation in (b"{", b"}", b";")
            self.directive = self.directive and self.data[max(0, self.at - 1) : self.at] == b"\\"
            self.first, self.on_line = True, False
            self.at += 1
        elif prefix := _PREFIX.match(self.data, self.at) if _WORD.match(byte) else None:
            self.at = prefix.end()
            self.quote(True)
        elif word := _WORD.match(self.data, self.at):
            known = word[0].decode(errors="replace") in KEYWORDS and self.punctuation != b"."
            self.add(word[0] if known else b"<name>", word[0], word.end())
        elif byte.isdigit():
            number = _HEXADECIMAL.match(self.data, self.at) or _DECIMAL.match(self.data, self.at)
            assert number is not None
            self.add(b"<number>", number[0], number.end())
        elif byte in b"\"'`":
            self.quote(not (byte == b"'" and re.match(_W, self.before())))
        else:
            self.other(byte)

    def add(self, kind: bytes, written: bytes, end: int, punctuation: bytes = b"") -> None:
        """Note a token that ends at `end`."""
        self.tokens.append(Token(kind, written))
        self.punctuation, self.at = punctuation, end
        self.first, self.on_line = False, True

    def quote(self, quoted: bool) -> None:
        """At a quote, which begins a string if `quoted`, and unless it is a lifetime's."""
        data, start = self.data, self.at
        mark = data[start : start + 1]
        lifetime = _LIFETIME.match(data, start)
        if mark == b"'" and quoted and lifetime:
            quoted = not (
                self.punctuation in (b"&", b"<") or data[lifetime.end() : lifetime.end() + 1] == b">"
            )
        if not quoted:
            self.at += 1
            self.first = False
            return
        content, end = b"", -1
        if mark != b"`" and data.startswith(mark * 3, start) and not self.open_three:
            found = _THREE[mark].match(data, start + 3)
            self.open_three = found is None
            if found:
                content, end = found[0][:-3], found.end()
                if self.first and (not self.tokens or self.punctuation == b":"):
                    self.first, self.at = False, end
                    return
        if end < 0 and start >= self.unclosed[mark]:
            found = _ON_LINE[mark].match(data, start + 1)
            if found:
                content, end = found[0][:-1], found.end()
            else:
                failed = _FAILED[mark].match(data, start + 1)
                self.unclosed[mark] = failed.end() if failed else start
        if end < 0:
            self.add(mark, mark, start + 1, mark)
            return
        if not (self.joined and self.last == b"<string>"):
            self.string = len(self.tokens)
            self.tokens.append(Token(b"<string>", b""))
        length = len(self.tokens[self.string].written)
        whole = self.tokens[self.string].written + content
        self.tokens[self.string] = Token(b"<string>", whole)
        words = re.findall(_W + rb"+", whole[max(length, LONG) :])
        self.tokens += [Token(b"<word>", word) for word in words]
        self.punctuation, self.joined, self.on_line, self.first, self.at = b"", True, True, False, end

    def other(self, byte: bytes) -> None:
        """A comment, or a byte that is a token, or none."""
        end = -1 if self.directive and byte == b"#" else self.comment(byte)
        if end >= 0:
            self.first, self.at = False, end
            return
        self.directive = self.directive or (byte == b"#" and self.first)
        self.first = False
        if byte in b",;\\":
            self.joined = self.joined and byte == b"\\"
            self.punctuation = self.punctuation if byte == b"\\" else byte
            self.at += 1
            return
        self.add(byte, byte, self.at + 1, byte)

    def comment(self, byte: bytes) -> int:
        """The end of the comment that begins here, else -1."""
        data, at, before = self.data, self.at, self.before()
        rest = _REST.match(data, at)
        line = rest.end() if rest else at
        spaced = re.match(_S, before) is not None
        if data.startswith((b"//", b"/*"), at) and before != b"\\":
            if data.startswith(b"//", at):
                operand = self.punctuation in (b")", b"]") or (
                    not self.punctuation and self.last in (b"<name>", b"<number>")
                )
                python = self.colons > self.braces and operand and self.on_line
                return -1 if before == b":" or python else line
            end = data.find(b"*/", at + 2) + 2
            tight = re.match(_W, before) or before in b"\"'`.*]^}"
            return -1 if end < 2 or (tight and end > line) else end
        if byte == b"#":
            if self.first:
                return -1 if _DIRECTIVE.match(data, at) else line
            return line if (spaced or before in b";)") and not _COLOUR.match(data, at) else -1
        for opening, closing in _BLOCKS:
            if data.startswith(opening, at):
                open_end = at + len(opening)
                if opening in (b"(*", b"{-") and not re.match(
                    _S + rb"|[\r\n]", data[open_end : open_end + 1]
                ):
                    continue
                end = data.find(closing, open_end)
                if end >= 0:
                    return end + len(closing)
        if byte == b"-" and (self.first or spaced) and _DASHES.match(data, at):
            return line
        if byte in b";%" and self.first and _SIGNED.match(data, at):
            return -1 if byte == b"%" and self.last == b"<string>" else line
        if byte == b"=" and before in b"\r\n" and _POD.match(data, at):
            found = _POD_END.search(data, at)
            return found.end() if found else len(data)
        return -1


def tokens(text: str) -> list[Token]:
    """The tokens of a text."""
    return Lexer(text.encode("utf-8", "surrogatepass")).tokens


def shingles(text: str, ngram: int) -> set[tuple[str | int, ...]]:
    """The set of the shingles of a text: what each token is, a name by the distance to the one before, or all as written."""
    found = tokens(text)
    places = range(max(1, len(found) - ngram + 1)) if found else range(0)
    plain = [_written(token) for token in found]
    written: list[tuple[str | int, ...]] = [tuple(plain[i : i + ngram]) for i in places]
    if len(found) - ngram + 1 < LEAST:
        return set(written)
    last: dict[bytes, int] = {}
    made: list[str | int] = []
    for i, token in enumerate(found):
        if token.kind == b"<name>":
            made.append(i - last.get(token.written, i))
            last[token.written] = i
        else:
            made.append(token.kind.decode() if token.kind in _VALUES else plain[i])
    normal = [
        tuple([0 if isinstance(x, int) and x > k else x for k, x in enumerate(made[i : i + ngram])])
        for i in places
    ]
    times = Counter(normal)
    structure = [plain[i] if token.kind not in _VALUES else None for i, token in enumerate(found)]
    mixed = {
        as_written
        if times[as_normal] > OFTEN or len({*structure[i : i + ngram], None}) <= STRUCTURE
        else as_normal
        for i, as_normal, as_written in zip(places, normal, written, strict=True)
    }
    return mixed if len(mixed) >= LEAST else set(written)


def _written(token: Token) -> str:
    word = token.kind in _VALUES or _WORD.fullmatch(token.kind)
    return ("word " if word else "byte ") + token.written.decode("latin-1")
