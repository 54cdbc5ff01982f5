"""What the scanner knows by name: elements, and words in classes and ids that say what an element is for."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

# Elements that begin and end a block of text; the order gives their numbers, from 1 on. 0 is any other element.
BLOCK_TAGS: Final = (
    "p", "div", "li", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "figcaption", "dt", "dd", "article",
    "main", "nav", "aside", "header", "footer", "form", "figure", "table", "ul", "ol", "section", "address", "body", "caption",
    "center", "details", "dialog", "dir", "dl", "fieldset", "frameset", "hgroup", "hr", "legend", "menu", "summary", "tbody",
    "tfoot", "thead", "tr", "html", "search",
)  # fmt: skip
LINK: Final = "a"
BREAK: Final = "br"
IMAGE: Final = "img"
# Elements whose content is no text of the page.
SKIPPED: Final = (
    "script", "style", "noscript", "template", "svg", "select", "option", "optgroup", "button", "textarea", "iframe", "object",
    "head", "title", "noembed", "noframes", "xmp", "canvas", "audio", "video", "map", "datalist", "dialog", "input", "label",
)  # fmt: skip
VOID: Final = (
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "param",
    "source",
    "track",
    "wbr",
)
# Their content is not markup, as the serialised page has it.
RAW: Final = ("script", "style", "xmp", "iframe", "noembed", "noframes", "noscript")
INLINE_MARKS: Final = ("strong", "b", "em", "i", "code", "time", "span", "font", "small", "cite")
TAGS: Final = tuple(dict.fromkeys((*BLOCK_TAGS, LINK, BREAK, IMAGE, *SKIPPED, *VOID, *RAW, *INLINE_MARKS)))
NUMBER: Final = {name: number for number, name in enumerate(TAGS, 1)}
BLOCKS: Final = len(BLOCK_TAGS)  # numbers 1 to this are of blocks

IS_VOID, IS_SKIPPED, IS_RAW = 1, 2, 4

# Groups of words in `class`, `id`, `role` and `itemprop`; `-` stands for any character that is no letter, and for both ends.
KEYWORDS: Final = {
    "comment": "comment disqus replies respond remark discussion -reply-",
    "share": "share sharing social facebook twitter whatsapp addthis -follow -like-",
    "related": "related recommend read-more readmore similar popular trending -most- -more- promo",
    "navigation": "nav menu breadcrumb paginat pager toolbar skip- -tabs- -tab- -jump",
    "advertisement": "-ad- -ads- advert sponsor banner adsense shopping outbrain taboola -dfp -gpt-",
    "author": "author byline writer -by- vcard profile -bio-",
    "date": "date -time timestamp publish posted -meta -info",
    "caption": "caption credit legend photo image gallery -media -img",
    "headline": "headline title heading kicker overline",
    "footer": "footer -foot- copyright legal disclaimer imprint",
    "header": "header masthead -top- topbar",
    "sidebar": "sidebar aside widget -rail -side- -col-",
    "content": "content article entry post story body -text- main blog",
    "body": "articlebody article-body entry-content post-content story-body article-content article-text hentry instapaper"
    " post-body prose- content-body main-content text-body article-main mw-parser",
    "offer": "newsletter subscri signup sign-up login register paywall cookie gdpr consent modal popup overlay donat",
    "topics": "-tag- -tags- categor topic keyword",
    "hidden": "hidden sr-only screen-reader visually invisible noprint print-only display-none",
    "lead": "-lead summary intro abstract excerpt standfirst teaser -dek- -deck- subtitle",
    "quote": "pullquote pull-quote quote",
    "reference": "-toc- reference footnote citation reflist -cite",
    "tool": "-edit button -btn -tool action rating vote -score",
    "data": "infobox -spec -data- table",
    "player": "video player embed audio",
    "form": "-form search input",
}  # fmt: skip
GROUPS: Final = tuple(KEYWORDS)
_SYMBOLS = 27  # 0: no letter; 1 to 26: a letter of either case


class Tables(NamedTuple):
    """What the scanner looks up: names of elements by hash, and the automaton of the words."""

    tag_hashes: npt.NDArray[np.uint64]
    tag_numbers: npt.NDArray[np.int64]
    tag_kinds: npt.NDArray[np.uint8]
    steps: npt.NDArray[np.int32]
    found: npt.NDArray[np.uint64]


def name_hash(name: bytes) -> int:
    """FNV-1a, as the scanner computes it."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The tables, made once a process."""
    size = 512
    hashes, numbers = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    for name, number in NUMBER.items():
        place = name_hash(name.encode()) % size
        while numbers[place]:
            place = (place + 1) % size
        hashes[place], numbers[place] = name_hash(name.encode()), number
    kinds = np.zeros(len(TAGS) + 1, np.uint8)
    for names, kind in ((VOID, IS_VOID), (SKIPPED, IS_SKIPPED), (RAW, IS_RAW)):
        for name in names:
            kinds[NUMBER[name]] |= kind
    return Tables(hashes, numbers, kinds, *_automaton())


def _automaton() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    """Steps and findings of an Aho-Corasick automaton over the words of all groups (Aho and Corasick 1975)."""
    goto: list[dict[int, int]] = [{}]
    found = [0]
    for group, words in enumerate(KEYWORDS.values()):
        for word in words.split():
            state = 0
            for char in word:
                symbol = ord(char) - 96 if char.isalpha() else 0
                if symbol not in goto[state]:
                    goto.append({})
                    found.append(0)
                    goto[state][symbol] = len(goto) - 1
                state = goto[state][symbol]
            found[state] |= 1 << group
    steps = np.zeros((len(goto), _SYMBOLS), np.int32)
    fail = [0] * len(goto)
    waiting = []
    for symbol, state in goto[0].items():
        steps[0, symbol] = state
        waiting.append(state)
    for state in waiting:
        found[state] |= found[fail[state]]
        for symbol in range(_SYMBOLS):
            if symbol in goto[state]:
                following = goto[state][symbol]
                fail[following] = int(steps[fail[state], symbol])
                steps[state, symbol] = following
                waiting.append(following)
            else:
                steps[state, symbol] = steps[fail[state], symbol]
    return steps, np.array(found, np.uint64)


def words_of(text: str) -> list[str]:
    """The groups of words that a class or id holds; what the scanner computes, for tests."""
    _, _, _, steps, found = tables()
    state, mask = int(steps[0, 0]), 0
    for char in text.lower() + "-":
        state = int(steps[state, ord(char) - 96 if "a" <= char <= "z" else 0])
        mask |= int(found[state])
    return [name for bit, name in enumerate(GROUPS) if mask >> bit & 1]
