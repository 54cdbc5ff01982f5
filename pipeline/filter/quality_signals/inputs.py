"""The signals that a model over signals reads: which way each may count, and how it is put in words.

Left out are signals of how long a document is, which says more about where a set was cut than about its text, those that repeat
another one here, and those of other models but the classifier of edited prose.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Direction = Literal["up", "down", "free"]
QUALITY: Final = "quality.score"


class Input(NamedTuple):
    """`direction`: whether more of it may only raise the score (up), only lower it (down), or either (free)."""

    signal: str
    direction: Direction
    words: str


_TABLE = """\
c4.kept_lines                      up    lines that C4's rules keep
document.all_caps_words_ratio      down  words in capitals
document.capitalized_words_ratio   down  words with a capital first
document.digits_ratio              down  digits
document.ellipsis_ratio            down  ellipses
document.letters_ratio             free  letters
document.long_sentences_ratio      up    sentences of 75 characters and more
document.long_words_ratio          free  long words
document.mean_line_words           free  words in a line
document.mean_sentence_length      free  length of sentences
document.non_alnum_ratio           free  characters that are no letters or digits
document.punctuation_ratio         free  punctuation
document.short_lines_ratio         down  lines of at most 10 characters
document.short_paragraphs_ratio    free  short paragraphs
document.short_sentences_ratio     down  sentences of at most 20 characters
document.short_words_ratio         free  short words
document.stop_words_ratio          up    "the", "of", "and" and the like
document.type_token_ratio          free  different words per word
document.uppercase_ratio           down  capitals
fineweb.char_dup_ratio             down  characters in repeated lines
fineweb.line_punct_ratio           up    lines that end like a sentence
fineweb.newline_ratio              down  line ends per word
fineweb.short_line_ratio           down  lines of at most 30 characters
gopher.alpha_words                 up    words with a letter
gopher.bullet_lines                down  lines that begin with a bullet
gopher.dup_5_gram                  down  text in repeated runs of five words
gopher.dup_line_frac               down  repeated lines
gopher.dup_para_frac               down  repeated paragraphs
gopher.ellipsis_lines              down  lines that end in an ellipsis
gopher.hash_ratio                  down  hash signs
gopher.mean_word_length            free  length of words
gopher.stop_words                  up    how many of the eight commonest words occur
gopher.top_2_gram                  down  the commonest pair of words
nemo.boilerplate_paragraphs        down  paragraphs about policies or cookies
nemo.bracket_ratio                 down  brackets
nemo.url_ratio                     down  web addresses
quality.score                      up    likeness to edited prose (fastText)
redpajama.bullet_lines             down  lines that begin with a list mark
redpajama.curly_bracket_ratio      down  curly brackets
redpajama.lorem_ipsum_ratio        down  "lorem ipsum"
redpajama.mean_line_digits         down  digits of a line
redpajama.mean_line_uppercase      down  capitals of a line
redpajama.stop_word_ratio          up    English function words
redpajama.symbol_ratio             down  hash signs and ellipses
redpajama.unigram_entropy          free  variety of words
refinedweb.counter_lines           down  lines that count likes or followers
refinedweb.numeric_lines           down  lines of digits alone
refinedweb.one_word_lines          down  lines of one word
refinedweb.phrase_lines            down  lines such as "sign-in" and "read more..."
refinedweb.uppercase_lines         down  lines mostly in capitals"""
INPUTS: Final = tuple(
    Input(name, direction, words)  # type: ignore[arg-type]
    for name, direction, words in (line.split(None, 2) for line in _TABLE.splitlines())
)
WORDS: Final = {one.signal: one.words for one in INPUTS}
