"""Edits of source files that leave them duplicates, for `bench decisions --task near_duplicates`.

What a token is comes from Pygments, which knows the language of each file: nothing here shares code with the lexer of the
preset `code`. Each edit takes a file and a seeded generator; None where the file has nothing to edit.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Literal, Name, String, Token

Tokens = list[tuple[Any, str]]
_LINES = ("python", "ruby", "perl")  # line breaks mean something
_MARK = {"python": "# ", "ruby": "# ", "perl": "# "}
_NOTES = (
    "The caller keeps the lock.", "Siehe die Beschreibung oben.", "Is this still needed?",
    "Renvoie la valeur par défaut.", "See the note on ownership.", "这里不检查边界", "Hack: see bug 4711 (won't fix)",
)  # fmt: skip


class Source(NamedTuple):
    """A file: its text, and its language as Pygments calls it."""

    text: str
    language: str


@lru_cache(maxsize=4096)
def tokens(source: Source) -> Tokens:
    lexer = get_lexer_by_name(source.language, stripnl=False, ensurenl=False)
    return list(lexer.get_tokens(source.text))


def is_comment(kind: Any) -> bool:
    return (
        kind in Comment and kind not in Comment.Preproc and kind not in Comment.PreprocFile
    ) or kind in String.Doc


def renamed(source: Source, chance: random.Random) -> str:
    """Every name replaced by another, the same one everywhere; keywords and built-in names stay."""
    new: dict[str, str] = {}

    def name(kind: Any, text: str) -> str:
        plain = kind in Name and kind not in Name.Builtin and re.fullmatch(r"[A-Za-z_]\w*", text)
        if not plain or kind in Name.Decorator:
            return text
        if text not in new:
            new[text] = "".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randint(3, 9))) + str(
                len(new)
            )
        return new[text]

    return "".join(name(kind, text) for kind, text in tokens(source))


def uncommented(source: Source, chance: random.Random) -> str | None:
    """All comments and docstrings gone, and the lines that are empty then."""
    kinds = tokens(source)
    if not any(is_comment(kind) for kind, _ in kinds):
        return None
    kept = "".join("\n" * text.count("\n") if is_comment(kind) else text for kind, text in kinds)
    return re.sub(r"\n\s*\n(\s*\n)+", "\n\n", kept)


def commented(source: Source, chance: random.Random) -> str:
    """The words of comments replaced, and a comment before one line in five."""
    kinds = [
        (
            kind,
            re.sub(r"[A-Za-z]{3,}", lambda m: m[0][::-1].lower(), text) if kind in Comment.Single else text,
        )
        for kind, text in tokens(source)
    ]
    depth, lines, inside = 0, [], False
    mark = _MARK.get(source.language, "// ")
    line: list[str] = []
    for kind, text in kinds:
        for part in re.split(r"(\n)", text):
            if part != "\n":
                line.append(part)
                continue
            whole = "".join(line)
            if whole.strip() and not inside and depth == 0 and chance.random() < 0.2:
                lines.append(re.match(r"\s*", whole)[0] + mark + chance.choice(_NOTES))  # type: ignore[index]
            lines.append(whole)
            line = []
            inside = whole.rstrip().endswith("\\") or kind in String or kind in Comment
    return "\n".join([*lines, "".join(line)])


def reformatted(source: Source, chance: random.Random) -> str | None:
    """Another style: Python as `ast.unparse` writes it; elsewhere tabs, other line breaks after `{`, `,` and `;`, spaces
    around operators and no blank lines."""
    if source.language == "python":
        try:
            return ast.unparse(ast.parse(source.text)) + "\n"
        except (SyntaxError, ValueError, RecursionError):
            return None
    parts: list[str] = []
    for kind, text in tokens(source):
        if kind in Comment or kind in Literal or kind in String or source.language in _LINES:
            parts.append(text)
        elif text in (",", ";", "{") and chance.random() < 0.3 and not _directive(parts):
            parts.append(text + "\n\t")
        elif text in ("=", "+", "<", "&&", "=="):
            parts.append(f" {text} ")
        else:
            parts.append(text)
    text = "".join(parts)
    text = re.sub(r"(?m)^( {2,})", lambda m: "\t" * (len(m[1]) // 2), text)
    return re.sub(r"\n\s*\n", "\n", text)


def _directive(parts: list[str]) -> bool:
    line = "".join(parts[-60:]).rpartition("\n")[2].lstrip()
    return line.startswith("#") or "//" in line


def reordered(source: Source, chance: random.Random) -> str | None:
    """Functions, methods and imports in another order: the blocks of the file, or of the classes in it, between the blank
    lines that lie in no string, comment or bracket."""
    kinds = tokens(source)
    classes = bool(
        re.search(
            r"(?m)^(?:export |public |abstract |final |static )*(?:class|interface|impl|module) ", source.text
        )
    )
    within = 1 if classes and source.language not in ("python", "ruby", "perl") else 0
    indent = 4 if classes else 0
    blocks, depth, block = [], 0, ""
    for n, (kind, text) in enumerate(kinds):
        if kind in Token.Punctuation or kind in Token.Operator:
            depth += len(re.findall(r"[({\[]", text)) - len(re.findall(r"[)}\]]", text))
        block += text
        blank = re.search(r"\n[ \t]*\n([ \t]*)$", block)
        following = kinds[n + 1][1] if n + 1 < len(kinds) else ""
        if (
            blank
            and not following.isspace()
            and kind in Token.Text
            and depth <= within
            and following not in ("}", ")")
            and len(blank[1].expandtabs(4)) <= indent
        ):
            blocks.append(block)
            block = ""
    if len(blocks) < 3:
        return None
    first, *rest = blocks
    chance.shuffle(rest)
    return "".join([first, *rest, block])


def edited(share: float) -> Callable[[Source, random.Random], str | None]:
    """So many of the lines of code replaced, deleted or followed by another line of the file that has another name in it;
    lines that belong to a string, a comment or a statement of several lines stay."""

    def edit(source: Source, chance: random.Random) -> str | None:
        lines = source.text.split("\n")
        fit = _whole_lines(source)
        if len(fit) < 10:
            return None
        for place in chance.sample(fit, max(1, round(share * len(fit)))):
            other = source.text.split("\n")[chance.choice(fit)].strip()
            other = re.sub(r"\b[a-z]\w{3,}\b", lambda m: m[0] + chance.choice("xyz"), other, count=1)
            indent = re.match(r"\s*", lines[place])[0]  # type: ignore[index]
            kind = chance.random()
            if kind < 0.4:
                lines[place] = indent + other
            elif kind < 0.7:
                lines[place] = lines[place] + "\n" + indent + other
            else:
                lines[place] = ""
        return "\n".join(lines)

    return edit


def _whole_lines(source: Source) -> list[int]:
    """The lines with code whose tokens and brackets all begin and end in them."""
    fit, line, depth, start, code = [], 0, 0, 0, False
    for kind, text in tokens(source):
        if kind in Token.Punctuation or kind in Token.Operator:
            depth += len(re.findall(r"[({\[]", text)) - len(re.findall(r"[)}\]]", text))
        code = code or (bool(text.strip()) and kind not in Comment and kind not in String.Doc)
        if "\n" in text:
            if depth == start and code and (kind in Token.Text or text == "\n"):
                fit.append(line)
            line += text.count("\n")
            start, code = depth, False
            if kind not in Token.Text and text != "\n":
                start = -1_000  # the rest of a token's last line is none
    return fit


def together(
    *steps: Callable[[Source, random.Random], str | None],
) -> Callable[[Source, random.Random], str | None]:
    """One edit after the other."""

    def edit(source: Source, chance: random.Random) -> str | None:
        for step in steps:
            text = step(source, chance)
            if text is None:
                return None
            source = source._replace(text=text)
        return source.text

    return edit


EDITS: dict[str, Callable[[Source, random.Random], str | None]] = {
    "renamed": renamed,
    "comments removed": uncommented,
    "comments added and translated": commented,
    "reformatted": reformatted,
    "reordered": reordered,
    "5 % of lines edited": edited(0.05),
    "10 % of lines edited": edited(0.1),
    "renamed, reformatted, comments removed": together(uncommented, renamed, reformatted),
    "renamed, 5 % of lines edited": together(renamed, edited(0.05)),
}
