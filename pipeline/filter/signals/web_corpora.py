"""The signals that papers and tools on web corpora define beside Gopher's: C4, RefinedWeb, FineWeb, Dolma, NeMo Curator,
RedPajama-V2.

Of RedPajama-V2's quality signals those are here that need no model and that no other family has; the others name RedPajama-V2
in their origin. Of its signals per line the value is the mean over the lines of a document.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import (
    SHARE,
    Measure,
    counted,
    family,
    lines_with,
    per_char,
    per_word,
    share_of_lines,
)
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.view import Array, TextView, once, share
from corpusmill.pipeline.text import unicode_tables
from corpusmill.pipeline.text.utf8 import before, decode, holds, is_at

C4_MIN_WORDS = 3  # of a line that C4 keeps


def c4_lines(view: TextView) -> Array:
    """bool, one per line: whether C4 keeps it. It ends in a terminal mark, has 3 words, none of more than 1,000
    characters, and neither "javascript" nor a phrase about policies ("terms of use", "uses cookies", ...)."""
    bad = k.LINE_JAVASCRIPT | k.LINE_POLICY | k.LINE_LONG_WORD
    ends = view.line_flags & k.LINE_C4_END != 0
    return np.asarray(ends & (view.line_flags & bad == 0) & (view.line_words >= C4_MIN_WORDS))


def _c4_sentences(view: TextView) -> Array:
    return view.lines_where(np.where(c4_lines(view), np.maximum(view.line_sentences, 1), 0))


_c4 = family("c4", "Raffel et al. 2020 (C4), JMLR 21:140, section 2.2")
for _value, _unit, _measure in (
    ("terminal_lines", "share of lines that end in . ! ? or a quotation mark", share_of_lines(k.LINE_C4_END)),
    ("kept_lines", "share of lines that C4's line rules keep", share_of_lines(c4_lines)),
):
    _c4(_value, _unit, _measure, range=SHARE, version="2")
_c4(
    "kept_sentences",
    "sentences in the lines that C4's line rules keep",
    _c4_sentences,
    dtype="int",
    version="2",
)
for _value, _unit, _measure, _more in (
    (
        "javascript_lines", "lines with 'javascript'", lines_with(k.LINE_JAVASCRIPT),
        "; RedPajama-V2: rps_lines_javascript_counts",
    ),
    ("policy_lines", "lines with a phrase about policies or cookies", lines_with(k.LINE_POLICY), ""),
    ("long_word_lines", "lines with a word of more than 1,000 characters", lines_with(k.LINE_LONG_WORD), ""),
    ("lorem_ipsum", "occurrences of 'lorem ipsum'", counted(k.LOREMS), ""),
    ("curly_brackets", "occurrences of '{'", counted(k.BRACES), ""),
):  # fmt: skip
    _c4(_value, _unit, _measure, _more, dtype="int")


# Bits of a line's kinds.
COUNTER: Final = 1  # a number, such as 1,200 or 3.5k, one of `COUNTED`, nothing else but marks around them
PHRASE: Final = 2  # up to ten words: "items in cart", "read more..." at the end or "sign-in" at the start

MOST_WORDS: Final = 10
COUNTED: Final = (
    "likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes", "downvotes",
    "downloads", "views", "followers",
)  # fmt: skip

_COUNTED = np.frombuffer("".join(COUNTED).encode(), np.uint8)
_ENDS = np.cumsum([len(word) for word in COUNTED])
_CART = np.frombuffer(b"items in cart", np.uint8)
_MORE = np.frombuffer(b"read more...", np.uint8)
_SIGN_IN = np.frombuffer(b"sign-in", np.uint8)


@compiled
def _in_word(data: Any, i: int, table: Any) -> bool:
    """Whether the character at `i` is one of a regular expression's \\w: a letter, a number or an underscore."""
    if data[i] == 95:
        return True
    return not table[decode(data, i)[0]] & (unicode_tables.SPACE | unicode_tables.OTHER | unicode_tables.MARK)


@compiled
def _is_counter(data: Any, first: int, last: int, table: Any) -> bool:
    """^\\W*\\d[,.\\d]*[kmb]?\\s+(likes|shares|...)\\W*$, ASCII letters in either case."""
    i = first
    while i < last and not _in_word(data, i, table):
        i += decode(data, i)[1]
    if i >= last or not table[decode(data, i)[0]] & unicode_tables.DIGIT:
        return False
    while i < last and (data[i] == 44 or data[i] == 46 or table[decode(data, i)[0]] & unicode_tables.DIGIT):
        i += decode(data, i)[1]
    if i < last and (data[i] | 32 == 107 or data[i] | 32 == 109 or data[i] | 32 == 98):
        i += 1
    gap = i
    while i < last and table[decode(data, i)[0]] & unicode_tables.SPACE:
        i += decode(data, i)[1]
    if i == gap:
        return False
    end = last
    while end > i and not _in_word(data, before(data, i, end), table):
        end = before(data, i, end)
    start = 0
    for stop in _ENDS:
        if end - i == stop - start and is_at(data, i, i, end, _COUNTED[start:stop]):
            return True
        start = stop
    return False


@compiled
def _has_phrase(data: Any, first: int, last: int) -> bool:
    return (
        is_at(data, first, first, last, _SIGN_IN)
        or is_at(data, last - len(_MORE), first, last, _MORE)
        or holds(data, first, last, _CART)
    )


@once
def line_kinds(view: TextView) -> Array:
    """uint8[lines]: `COUNTER` and `PHRASE`, the line rules of RefinedWeb on words as DCLM has them."""
    return np.asarray(
        _line_kinds(view.data, view.line_start, view.line_end, view.line_words, unicode_tables.class_table())
    )


@compiled
def _line_kinds(data: Any, line_start: Any, line_end: Any, line_words: Any, table: Any) -> Any:
    kinds = np.zeros(len(line_start), np.uint8)
    for line in range(len(line_start)):
        first, last = line_start[line], line_end[line]
        if line_words[line] <= MOST_WORDS and _has_phrase(data, first, last):
            kinds[line] |= PHRASE
        if _is_counter(data, first, last, table):
            kinds[line] |= COUNTER
    return kinds


def _of_kind(kind: int) -> Measure:
    return share_of_lines(lambda v: line_kinds(v) & kind != 0)


_refinedweb = family("refinedweb", "Penedo et al. 2023 (RefinedWeb), arXiv:2306.01116, as in DCLM: ")
for _value, _unit, _measure, _more in (
    (
        "uppercase_lines", "with more than half of the characters in upper case",
        share_of_lines(lambda v: 2 * v.line_upper > v.line_chars), "uppercase_ratio_line_modifier",
    ),
    (
        "numeric_lines", "of digits alone", share_of_lines(lambda v: v.line_digits == v.line_chars),
        "numeric_ratio_line_modifier",
    ),
    ("one_word_lines", "of one word", share_of_lines(lambda v: v.line_words == 1), "line_length_modifier"),
    ("counter_lines", "such as '3 likes' or '1.2k followers'", _of_kind(COUNTER), "counter_line_modifier"),
    (
        "phrase_lines", "of at most 10 words with 'items in cart', 'read more...' last or 'sign-in' first",
        _of_kind(PHRASE), "substring_line_modifier",
    ),
):  # fmt: skip
    _refinedweb(_value, f"share of lines {_unit}", _measure, _more, range=SHARE)


SHORT_LINE = 30  # characters; a line of exactly 30 is short, as in datatrove


def _without_line_feeds(view: TextView) -> Array:
    return view.count(k.CHARS) - view.count(k.NEWLINES)


_fineweb = family("fineweb", "Penedo et al. 2024 (FineWeb), arXiv:2406.17557, section 3.6")
for _value, _unit, _measure, _more in (
    (
        "line_punct_ratio", "lines that end in a terminal mark of any script", share_of_lines(k.LINE_TERMINAL),
        "lines_ending_with_terminal_mark_ratio; NeMo Curator: 1 - PunctuationFilter",
    ),
    (
        "short_line_ratio", "lines of at most 30 characters",
        share_of_lines(lambda v: v.line_chars <= SHORT_LINE), "short_line_ratio_chars_30",
    ),
    (
        "char_dup_ratio", "characters, line feeds left out, in later copies",
        lambda v: share(v.line_copies[:, 1], _without_line_feeds(v)), "line_char_duplicates",
    ),
):  # fmt: skip
    _fineweb(_value, f"share of {_unit}", _measure, f"; datatrove: {_more}", range=SHARE)
_fineweb("newline_ratio", "line feeds per word", per_word(k.NEWLINES))


MAX_PERIOD = 13  # of a sequence that repeats, as in Dolma's tagger


def repetitions(view: TextView) -> Array:
    """How often a sequence of up to 13 words stands in direct succession, at most; Dolma counts tokens of GPT-NeoX."""
    return np.asarray(_repetitions(view.word_hash, view.word_offsets))


@compiled
def _repetitions(words: Any, offsets: Any) -> Any:
    most = np.zeros(len(offsets) - 1, np.int64)
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        if last > first:
            most[d] = 1
        for period in range(1, min(MAX_PERIOD, last - first) + 1):
            run = 0
            for i in range(first + period, last):
                run = run + 1 if words[i] == words[i - period] else 0
                most[d] = max(most[d], run // period + 1)
    return most


_dolma = family("dolma", "Soldaini et al. 2024 (Dolma), arXiv:2402.00159: ", on_demand=True)
_dolma("repetitions", "times in a row", repetitions, "tokenizer_repetitions_v2r2, on words", dtype="int")


def non_alnum(view: TextView) -> Array:
    """Unlike NeMo, which takes letters that are not ASCII for symbols."""
    spared = (k.ALPHAS, k.MARKS, k.DIGITS, k.NEWLINES, k.STOP_MARKS)
    chars = view.count(k.CHARS)
    return share(chars - view.counts[:, spared].sum(axis=1), chars)


def _boilerplate(view: TextView) -> Array:
    return share(view.paras_where(view.para_flags & k.LINE_POLICY != 0), view.paras)


_nemo = family("nemo", "NeMo Curator, heuristic filters: ")
for _value, _unit, _measure, _more in (
    (
        "non_alnum_ratio", "characters but letters, marks, digits, line feeds and . , ! ?", non_alnum,
        "NonAlphaNumericFilter, with the letters and digits of all scripts",
    ),
    ("url_ratio", "characters in http and https addresses", per_char(k.ADDRESS_CHARS), "UrlsFilter"),
    ("bracket_ratio", "characters: ( ) [ ] { } ⟨ ⟩", per_char(k.BRACKETS), "ParenthesesFilter"),
    (
        "boilerplate_paragraphs", "paragraphs with a phrase about policies or cookies", _boilerplate,
        "BoilerPlateStringFilter, with the phrases of c4.policy_lines",
    ),
):  # fmt: skip
    _nemo(_value, f"share of {_unit}", _measure, _more, range=SHARE)


def _mean_share(column: str) -> Measure:
    def measure(view: TextView) -> Array:
        # Summed within each document: a difference of running sums would depend on the documents before it.
        shares = np.append(share(getattr(view, column), view.line_chars), 0.0)
        return share(np.add.reduceat(shares, view.line_offsets[:-1]), view.lines)

    return measure


def _bare_word_length(view: TextView) -> Array:
    return share(view.count(k.BARE_CHARS), view.count(k.BARE_WORDS))


_redpajama = family("redpajama", "RedPajama-V2, Weber et al. 2024, arXiv:2411.12372: ")
_redpajama("word_count", "bare words", counted(k.BARE_WORDS), "rps_doc_word_count", dtype="int")
for _value, _unit, _measure, _more in (
    ("mean_word_length", "characters of bare words", _bare_word_length, "rps_doc_mean_word_length"),
    ("unigram_entropy", "nats, of bare words", lambda v: v.vocabulary[:, 1], "rps_doc_unigram_entropy"),
    (
        "stop_word_ratio", "share of words that are English function words",
        lambda v: share(v.vocabulary[:, 2], v.words), "rps_doc_stop_word_fraction, with a list of our own",
    ),
    ("symbol_ratio", "'#', '...' and '…' per word", per_word(k.HASHES, k.ELLIPSES), "rps_doc_symbol_to_word_ratio"),
    (
        "curly_bracket_ratio", "share of characters: '{' and '}'", per_char(k.BRACES, k.CLOSING_BRACES),
        "rps_doc_curly_bracket",
    ),
    (
        "lorem_ipsum_ratio", "occurrences of 'lorem ipsum' per character", per_char(k.LOREMS),
        "rps_doc_lorem_ipsum",
    ),
    (
        "terminal_lines", "share of lines that end in . ! ? or ”", share_of_lines(k.LINE_REDPAJAMA_END),
        "rps_lines_ending_with_terminal_punctution_mark",
    ),
    (
        "bullet_lines", "share of lines that start with one of • ‣ ▶ ◀ ◦ ■ □ ▪ ▫ –", share_of_lines(k.LINE_LIST_MARK),
        "rps_lines_start_with_bulletpoint",
    ),
    (
        "mean_line_uppercase", "share of a line's characters that are upper case letters, mean over lines",
        _mean_share("line_upper"), "rps_lines_uppercase_letter_fraction",
    ),
    (
        "mean_line_digits", "share of a line's characters that are decimal digits, mean over lines",
        _mean_share("line_digits"), "rps_lines_numerical_chars_fraction",
    ),
):  # fmt: skip
    unbounded = _value in ("mean_word_length", "unigram_entropy", "symbol_ratio")
    _redpajama(_value, _unit, _measure, _more, range=(0.0, None) if unbounded else SHARE)
