"""Wikitext to plain text, in time linear in its length: what a reader of the page reads, without its boxes.

Templates, tables, references, files and categories go; links, emphasis, headings and lists become text. One
pass matches brackets with a stack, so nothing here backtracks: every regular expression is either a plain
search for a token or uses possessive quantifiers over classes that exclude its own start.
"""

from __future__ import annotations

import re
from html import unescape

# Shown by the page although it is a template: which argument is the text (-1: the last one).
_SHOWN_TEMPLATES = {
    "lang": -1, "nowrap": 1, "nobr": 1, "abbr": 1, "quote": 1, "cquote": 1, "blockquote": 1,
    "small": 1, "big": 1, "smallcaps": 1, "sc": 1, "em": 1, "strong": 1,
    "visible anchor": 1, "not a typo": 1, "translation": 1,
    "transl": -1, "transliteration": -1, "script": -1, "center": 1, "tooltip": 1, "sic": 1,
}  # fmt: skip
_SPACED_TEMPLATES = {"convert": (1, 2), "cvt": (1, 2)}  # {{convert|5|km}} -> 5 km
_DROPPED_NAMESPACES = frozenset(("file", "image", "media", "category"))
_DROPPED_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "ref references math chem ce gallery timeline score imagemap hiero graph mapframe maplink table"
        " templatestyles section inputbox categorytree includeonly noinclude",
    )
)
_ELEMENT = re.compile(r"<(/?)([a-zA-Z]+)\b([^<>]*+)>")
_NOWIKI = re.compile(r"<nowiki\s*+>(.*?)</nowiki>", re.S)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*+>")
_BREAKS = re.compile(
    r"<(?:/?(?:p|div|li|ul|ol|dd|dt|dl|blockquote|center|h[1-6]|tr|pre|poem)|br)\b[^<>]*+>", re.I
)
_COMMENT = re.compile(
    r"<!--.*?(?:-->|\Z)", re.S
)  # an unclosed one runs to the end of the page, as in MediaWiki
_BRACKET = re.compile(r"\{\{|\}\}|\[\[|\]\]|^[ \t:]*+\{\||\|\}(?!\})", re.M)
_EXTERNAL = re.compile(r"\[(?:https?:|ftps?:|mailto:|news:|irc:)?//?[^\s\[\]]*+[ \t]*+([^\[\]\n]*+)\]")
_EMPHASIS = re.compile(r"'{2,}")
_SWITCH = re.compile(r"__[A-Z]{3,30}__")
_HOLLOW = re.compile(r"[ \t]?\([\s,;:]*+\)")  # what a dropped template leaves: "Name (; )"
_HOLLOW_START = re.compile(r"\([,;:]\s++")
_INTERWIKI = re.compile(r"(?:[a-z]{2,3}|simple|[a-z]{2,3}-[a-z]{2,8}(?:-[a-z]{2,8})?):\S")
_BLANKS = re.compile(r"\n{3,}")
_MAX_DEPTH = 40  # kept text nested deeper is dropped: joining it level by level would cost the square
# Literal markup between <nowiki> tags hides as Unicode noncharacters until the end.
_LITERAL = "{}[]|<>'=*#:;&_"
_HIDE = {ord(char): 0xFDD0 + i for i, char in enumerate(_LITERAL)}
_SHOW = {0xFDD0 + i: char for i, char in enumerate(_LITERAL)}
_NEVER = dict.fromkeys(range(0xFDD0, 0xFDF0))


def strip(wikitext: str, namespaces: frozenset[str] = frozenset()) -> str:
    """The text of a page. `namespaces`: local names (lower case) whose links are no text, such as `datei`."""
    if any(0xFDD0 <= ord(char) < 0xFDF0 for char in set(wikitext)):
        wikitext = wikitext.translate(_NEVER)
    text = _hide_literals(_COMMENT.sub("", wikitext))
    text = _drop_elements(text)
    text = _resolve_brackets(text, _DROPPED_NAMESPACES | namespaces)
    text = _EXTERNAL.sub(r"\1", text)
    text = _TAG.sub("", _BREAKS.sub("\n", text))
    text = _SWITCH.sub("", _EMPHASIS.sub("", text))
    text = _HOLLOW_START.sub("(", _HOLLOW.sub("", text))
    text = _lines(text).translate(_SHOW)
    return unescape(text).replace("\xa0", " ").strip()


def _hide_literals(text: str) -> str:
    """What stands between <nowiki> tags is no markup; an unclosed tag is dropped later, as any tag."""
    # Only up to the last closing tag: without one ahead, each opening tag would be sought to the end of the page.
    end = text.rfind("</nowiki>") + len("</nowiki>")
    return _NOWIKI.sub(lambda match: match[1].translate(_HIDE), text[:end]) + text[end:]


def _drop_elements(text: str) -> str:
    """Without the elements that hold no prose. An unclosed one loses its tag only."""
    spans: list[tuple[int, int]] = []
    opened: dict[str, list[int]] = {}
    for match in _ELEMENT.finditer(text):
        name = match[2].lower()
        if name not in _DROPPED_ELEMENTS:
            continue
        if match[1]:
            if opened.get(name):
                spans.append((opened[name].pop(), match.end()))
        elif match[3].endswith("/"):
            spans.append((match.start(), match.end()))
        elif name == "ref" and opened.get(name):
            opened[name][-1] = match.start()  # references do not nest: the one before was never closed
        else:
            opened.setdefault(name, []).append(match.start())
    pieces, at = [], 0
    for begin, end in sorted(spans):
        if end <= at:
            continue
        pieces.append(text[at : max(begin, at)])
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


_CLOSER = {"{{": "}}", "[[": "]]", "{|": "|}"}
_OPENER = {close: opening for opening, close in _CLOSER.items()}


def _resolve_brackets(text: str, dropped: frozenset[str]) -> str:
    """Templates and tables out, links to their text. Brackets without a partner stay as they are."""
    stack: list[tuple[str, list[str]]] = [("", [])]  # opener, pieces of text inside it
    waiting = dict.fromkeys(_CLOSER, 0)
    at = 0
    for match in _BRACKET.finditer(text):
        stack[-1][1].append(text[at : match.start()])
        at = match.end()
        token = match[0].lstrip(" \t:")
        if token in _CLOSER:
            waiting[token] += 1
            stack.append((token, []))
            continue
        opener = _OPENER[token]
        if not waiting[opener]:
            stack[-1][1].append(token)
            continue
        top = len(stack) - 1
        while stack[top][0] != opener:
            top -= 1
        pieces = stack[top][1]
        for unclosed, inside in stack[top + 1 :]:
            waiting[unclosed] -= 1
            pieces.append(unclosed)
            pieces.extend(inside)
        del stack[top:]
        waiting[opener] -= 1
        if opener != "{|" and len(stack) <= _MAX_DEPTH:
            shown = _link(pieces, dropped) if opener == "[[" else _template(pieces)
            stack[-1][1].append(shown)
    stack[-1][1].append(text[at:])
    return "".join(piece for opener, pieces in stack for piece in (opener, *pieces))


def _link(pieces: list[str], dropped: frozenset[str]) -> str:
    target, bar, label = "".join(pieces).partition("|")
    target = target.strip()
    if target.startswith(":"):
        return label.strip() or target[1:]
    prefix, colon, rest = target.partition(":")
    if colon and prefix.strip().lower() in dropped:
        return ""
    if not bar:
        return "" if colon and _INTERWIKI.match(target) else target.partition("#")[0] or target.lstrip("#")
    return label.strip(" ") or (rest if colon else target).split(" (")[0].strip()


def _template(pieces: list[str]) -> str:
    name, bar, _ = (pieces[0] if pieces else "").partition("|")
    name = name.strip().lower().replace("_", " ")
    if name.startswith("lang-") and bar:
        name = "lang"
    if name not in _SHOWN_TEMPLATES and name not in _SPACED_TEMPLATES:
        return ""
    arguments = "".join(pieces).split("|")
    plain = [part.split("=", 1)[1] if re.match(r"\s*+(?:\d|text)\s*+=", part) else part for part in arguments]
    plain = [part.strip() for part in plain if not re.match(r"\s*+[a-zA-Z_-]{1,30}\s*+=", part)]
    if name in _SPACED_TEMPLATES:
        return " ".join(plain[i] for i in _SPACED_TEMPLATES[name] if i < len(plain))
    index = _SHOWN_TEMPLATES[name]
    return plain[index] if len(plain) > abs(index) else ""


def _lines(text: str) -> str:
    """Headings, lists and rules as lines of text; a heading with nothing below it goes."""
    out: list[tuple[int, str]] = []  # (heading level or 0, line)
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("=") and line.endswith("=") and (title := line.strip("= ")):
            level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")))
            out.append((level, title))
        elif line.startswith("----"):
            out.append((0, line.lstrip("-").strip()))
        elif line and line[0] in "*#:;":
            marks = line[: len(line) - len(line.lstrip("*#:;"))]
            rest = line[len(marks) :].strip()
            out.append((0, f"- {rest}" if rest and marks[-1] in "*#" else rest))
        else:
            out.append((0, line))
    kept: list[str] = []
    below = 99  # level of the next kept line, seen from the end: 0 for prose, 99 for the end of the page
    for level, line in reversed(out):
        if level and (1 <= below <= level or below == 99):
            continue
        kept.append(line)
        if line:
            below = level
    return _BLANKS.sub("\n\n", "\n".join(reversed(kept)))
