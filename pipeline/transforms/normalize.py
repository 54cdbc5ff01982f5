"""`normalize`: one form for what is written in several."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.pipeline.engine.custom import stage

FORMS = {"": None, "nfc": "NFC", "nfkc": "NFKC", "nfd": "NFD", "nfkd": "NFKD"}
CASES = {"": None, "lower": pc.utf8_lower, "upper": pc.utf8_upper}
# Patterns of RE2 and what stands in their place.
QUOTES = ((r"[\x{201C}-\x{201F}\x{2033}\x{FF02}]", '"'), (r"[\x{2018}-\x{201B}\x{2032}\x{FF07}]", "'"))
DASHES = ((r"[\x{2010}-\x{2015}\x{2212}\x{FE58}\x{FE63}\x{FF0D}]", "-"),)
SPACES = (
    (r"[\x{00A0}\x{1680}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}]", " "),
    (r"[\x{200B}\x{2060}\x{FEFF}]", ""),
)


@stage(version="1")
def normalize(
    docs: pa.Table, unicode: str = "nfc", quotes: bool = False, dashes: bool = False, spaces: bool = False, case: str = ""
) -> pa.Table:  # fmt: skip
    """Documents with texts in one form; none is removed.

    `unicode`: nfc (canonical composition, which changes no meaning), nfkc (compatibility too: ligatures, superscripts and full-width
    letters become plain ones, which does), nfd, nfkd, or "" for none; `quotes`: typographic quotation marks become ' and ";
    `dashes`: all dashes and hyphens become -; `spaces`: spaces of all widths become a plain one, and those without width go; `case`:
    lower, upper, or "" for as it is. In this order. Raises `UserError` for another value.
    """
    if unicode not in FORMS:
        raise UserError(f"normalize.unicode: '{unicode}' is none of {_named(FORMS)}")
    if case not in CASES:
        raise UserError(f"normalize.case: '{case}' is none of {_named(CASES)}")
    text = docs["text"]
    if form := FORMS[unicode]:
        text = pc.utf8_normalize(text, form)
    for wanted, table in ((quotes, QUOTES), (dashes, DASHES), (spaces, SPACES)):
        for pattern, other in table if wanted else ():
            text = pc.replace_substring_regex(text, pattern, other)
    if change := CASES[case]:
        text = change(text)
    return docs.set_column(docs.column_names.index("text"), "text", text)


def _named(values: dict[str, Any]) -> str:
    return ", ".join(value or '""' for value in values)
