"""The signals that papers and tools on web corpora define beside Gopher's: C4, RefinedWeb, FineWeb, Dolma, NeMo Curator,
RedPajama-V2.

Of RedPajama-V2's quality signals those are here that need no model and that no other family has; those that another family has
name RedPajama-V2's in their origin. Of signals per line this is the mean over the lines of a document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import SHARE, Measure, share_of_lines, signal
from corpusmill.pipeline.filter.text import scan as k
from corpusmill.pipeline.filter.text.line_kinds import COUNTER, PHRASE
from corpusmill.pipeline.filter.text.view import TextView, share

C4 = "Raffel et al. 2020 (C4), JMLR 21:140, section 2.2"

C4_MIN_WORDS = 3  # of a line that C4 keeps


def c4_lines(view: TextView) -> npt.NDArray[Any]:
    """bool, one per line: whether C4 keeps it. It ends in a terminal mark, has 3 words, none of more than 1,000
    characters, and neither "javascript" nor a phrase about policies ("terms of use", "uses cookies", ...)."""
    bad = k.LINE_JAVASCRIPT | k.LINE_POLICY | k.LINE_LONG_WORD
    ends = view.line_flags & k.LINE_C4_END != 0
    kept: npt.NDArray[Any] = ends & (view.line_flags & bad == 0) & (view.line_words >= C4_MIN_WORDS)
    return kept


signal(
    "c4.terminal_lines", "share of lines that end in . ! ? or a quotation mark", C4, range=SHARE, version="2"
)(share_of_lines(k.LINE_C4_END))
signal("c4.kept_lines", "share of lines that C4's line rules keep", C4, range=SHARE, version="2")(
    lambda v: share(v.lines_where(c4_lines(v)), v.lines)
)
signal("c4.kept_sentences", "sentences in the lines that C4's line rules keep", C4, "int", version="2")(
    lambda v: v.lines_where(np.where(c4_lines(v), np.maximum(v.line_sentences, 1), 0))
)
signal(
    "c4.javascript_lines",
    "lines with 'javascript'",
    f"{C4}; RedPajama-V2: rps_lines_javascript_counts",
    "int",
)(lambda v: v.lines_where(v.line_flags & k.LINE_JAVASCRIPT != 0))
signal("c4.policy_lines", "lines with a phrase about policies or cookies", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_POLICY != 0)
)
signal("c4.long_word_lines", "lines with a word of more than 1,000 characters", C4, "int")(
    lambda v: v.lines_where(v.line_flags & k.LINE_LONG_WORD != 0)
)
signal("c4.lorem_ipsum", "occurrences of 'lorem ipsum'", C4, "int")(lambda v: v.count(k.LOREMS))
signal("c4.curly_brackets", "occurrences of '{'", C4, "int")(lambda v: v.count(k.BRACES))


REFINEDWEB = "Penedo et al. 2023 (RefinedWeb), arXiv:2306.01116, as in DCLM: "

signal(
    "refinedweb.uppercase_lines",
    "share of lines with more than half of the characters in upper case",
    REFINEDWEB + "uppercase_ratio_line_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(2 * v.line_upper > v.line_chars), v.lines))
signal(
    "refinedweb.numeric_lines",
    "share of lines of digits alone",
    REFINEDWEB + "numeric_ratio_line_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_digits == v.line_chars), v.lines))
signal(
    "refinedweb.one_word_lines",
    "share of lines of one word",
    REFINEDWEB + "line_length_modifier",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_words == 1), v.lines))


def _of_kind(kind: int) -> Measure:
    return lambda v: share(v.lines_where(v.line_kinds & kind != 0), v.lines)


signal(
    "refinedweb.counter_lines",
    "share of lines such as '3 likes' or '1.2k followers'",
    REFINEDWEB + "counter_line_modifier",
    range=SHARE,
)(_of_kind(COUNTER))
signal(
    "refinedweb.phrase_lines",
    "share of lines of at most 10 words with 'items in cart', 'read more...' last or 'sign-in' first",
    REFINEDWEB + "substring_line_modifier",
    range=SHARE,
)(_of_kind(PHRASE))


FINEWEB = "Penedo et al. 2024 (FineWeb), arXiv:2406.17557, section 3.6"

SHORT_LINE = 30  # characters; a line of exactly 30 is short, as in datatrove

signal(
    "fineweb.line_punct_ratio",
    "share of lines that end in a terminal mark of any script",
    f"{FINEWEB}; datatrove: lines_ending_with_terminal_mark_ratio; NeMo Curator: 1 - PunctuationFilter",
    range=SHARE,
)(share_of_lines(k.LINE_TERMINAL))
signal(
    "fineweb.short_line_ratio",
    "share of lines of at most 30 characters",
    f"{FINEWEB}; datatrove: short_line_ratio_chars_30",
    range=SHARE,
)(lambda v: share(v.lines_where(v.line_chars <= SHORT_LINE), v.lines))
signal(
    "fineweb.char_dup_ratio",
    "share of characters, line feeds left out, in later copies",
    f"{FINEWEB}; datatrove: line_char_duplicates",
    range=SHARE,
)(lambda v: share(v.line_copies[:, 1], v.count(k.CHARS) - v.count(k.NEWLINES)))
signal("fineweb.newline_ratio", "line feeds per word", FINEWEB)(lambda v: share(v.count(k.NEWLINES), v.words))


DOLMA = "Soldaini et al. 2024 (Dolma), arXiv:2402.00159: "

MAX_PERIOD = 13  # of a sequence that repeats, as in Dolma's tagger


@signal(
    "dolma.repetitions",
    "times in a row",
    DOLMA + "tokenizer_repetitions_v2r2, on words",
    "int",
    on_demand=True,
)
def repetitions(view: TextView) -> npt.NDArray[Any]:
    """How often a sequence of up to 13 words stands in direct succession, at most; Dolma counts tokens of GPT-NeoX."""
    found: npt.NDArray[Any] = _repetitions(view.word_hash, view.word_offsets)
    return found


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


NEMO = "NeMo Curator, heuristic filters: "


@signal(
    "nemo.non_alnum_ratio",
    "share of characters but letters, marks, digits, line feeds and . , ! ?",
    NEMO + "NonAlphaNumericFilter, with the letters and digits of all scripts",
    range=SHARE,
)
def non_alnum(view: TextView) -> npt.NDArray[Any]:
    """NeMo knows ASCII letters alone, so that text in another script is all symbols to it."""
    spared = (k.ALPHAS, k.MARKS, k.DIGITS, k.NEWLINES, k.STOP_MARKS)
    chars = view.count(k.CHARS)
    return share(chars - view.counts[:, spared].sum(axis=1), chars)


signal(
    "nemo.url_ratio",
    "share of characters in http and https addresses",
    NEMO + "UrlsFilter",
    range=SHARE,
)(lambda v: share(v.count(k.ADDRESS_CHARS), v.count(k.CHARS)))
signal(
    "nemo.bracket_ratio",
    "share of characters: ( ) [ ] { } ⟨ ⟩",
    NEMO + "ParenthesesFilter",
    range=SHARE,
)(lambda v: share(v.count(k.BRACKETS), v.count(k.CHARS)))
signal(
    "nemo.boilerplate_paragraphs",
    "share of paragraphs with a phrase about policies or cookies",
    NEMO + "BoilerPlateStringFilter, with the phrases of c4.policy_lines",
    range=SHARE,
)(lambda v: share(v.paras_where(v.para_flags & k.LINE_POLICY != 0), v.paras))


REDPAJAMA = "RedPajama-V2, Weber et al. 2024, arXiv:2411.12372: "

signal("redpajama.word_count", "bare words", REDPAJAMA + "rps_doc_word_count", "int")(
    lambda v: v.count(k.BARE_WORDS)
)
signal("redpajama.mean_word_length", "characters of bare words", REDPAJAMA + "rps_doc_mean_word_length")(
    lambda v: share(v.count(k.BARE_CHARS), v.count(k.BARE_WORDS))
)
signal("redpajama.unigram_entropy", "nats, of bare words", REDPAJAMA + "rps_doc_unigram_entropy")(
    lambda v: v.vocabulary[:, 1]
)
signal(
    "redpajama.stop_word_ratio",
    "share of words that are English function words (text/vocabulary.py)",
    REDPAJAMA + "rps_doc_stop_word_fraction, with a list of our own",
    range=SHARE,
)(lambda v: share(v.vocabulary[:, 2], v.words))
signal("redpajama.symbol_ratio", "'#', '...' and '…' per word", REDPAJAMA + "rps_doc_symbol_to_word_ratio")(
    lambda v: share(v.count(k.HASHES) + v.count(k.ELLIPSES), v.words)
)
signal(
    "redpajama.curly_bracket_ratio",
    "share of characters: '{' and '}'",
    REDPAJAMA + "rps_doc_curly_bracket",
    range=SHARE,
)(lambda v: share(v.count(k.BRACES) + v.count(k.CLOSING_BRACES), v.count(k.CHARS)))
signal(
    "redpajama.lorem_ipsum_ratio",
    "occurrences of 'lorem ipsum' per character",
    REDPAJAMA + "rps_doc_lorem_ipsum",
    range=SHARE,
)(lambda v: share(v.count(k.LOREMS), v.count(k.CHARS)))
signal(
    "redpajama.terminal_lines",
    "share of lines that end in . ! ? or ”",
    REDPAJAMA + "rps_lines_ending_with_terminal_punctution_mark",
    range=SHARE,
)(share_of_lines(k.LINE_REDPAJAMA_END))
signal(
    "redpajama.bullet_lines",
    "share of lines that start with one of • ‣ ▶ ◀ ◦ ■ □ ▪ ▫ –",
    REDPAJAMA + "rps_lines_start_with_bulletpoint",
    range=SHARE,
)(share_of_lines(k.LINE_LIST_MARK))


def _mean_share(column: str) -> Measure:
    def measure(view: TextView) -> npt.NDArray[Any]:
        # Summed within each document: a difference of running sums would depend on the documents before it.
        shares = np.append(share(getattr(view, column), view.line_chars), 0.0)
        return share(np.add.reduceat(shares, view.line_offsets[:-1]), view.lines)

    return measure


signal(
    "redpajama.mean_line_uppercase",
    "share of a line's characters that are upper case letters, mean over lines",
    REDPAJAMA + "rps_lines_uppercase_letter_fraction",
    range=SHARE,
)(_mean_share("line_upper"))
signal(
    "redpajama.mean_line_digits",
    "share of a line's characters that are decimal digits, mean over lines",
    REDPAJAMA + "rps_lines_numerical_chars_fraction",
    range=SHARE,
)(_mean_share("line_digits"))
