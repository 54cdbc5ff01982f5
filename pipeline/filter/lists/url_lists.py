"""The user's block lists, loaded, and what a column of URLs holds of them: signals `url.*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.filter.lists import url_kernels
from corpusmill.pipeline.filter.lists.list_files import read_entries, state
from corpusmill.pipeline.filter.lists.url_kernels import Keys, keys
from corpusmill.pipeline.filter.lists.word_lists import Automaton, automaton, occurrences
from corpusmill.pipeline.filter.text.view import text_buffers
from corpusmill.pipeline.text.unicode_tables import joins_table, lower, lower_table
from corpusmill.schemas.filter import UrlLists
from corpusmill.schemas.tables import SignalSpec

ORIGIN: Final = "Penedo et al. 2023 (RefinedWeb), arXiv:2306.01116, section G.1; datatrove, URLFilter"

# list of `filter.urls` -> (signal, what it counts)
SIGNALS: Final = {
    "domains": ("url.blocked_domain", "1 if the host or a domain above it is listed"),
    "subdomains": ("url.blocked_subdomain", "1 if the host itself is listed"),
    "urls": ("url.blocked_url", "1 if the URL is listed"),
    "hard_words": ("url.hard_words", "listed words in the URL"),
    "soft_words": ("url.soft_words", "different listed words in the URL"),
    "substrings": ("url.substrings", "places in the URL's letters and digits where a listed text ends"),
}
_PLAIN_HOST: Final = re.compile("[A-Za-z0-9.-]+")
_NO_WORD: Final = re.compile("[^a-z0-9]+")
_COLUMNS: Final = {
    "domains": url_kernels.DOMAIN,
    "subdomains": url_kernels.SUBDOMAIN,
    "urls": url_kernels.PAGE,
    "hard_words": url_kernels.HARD,
    "soft_words": url_kernels.SOFT,
}


class UrlRules:
    """The lists of a recipe, loaded; without lists there is nothing to measure.

    Raises `UserError` for a file that is missing, unreadable or empty.
    """

    def __init__(self, lists: UrlLists | None) -> None:
        self.lists = lists
        self.specs: list[SignalSpec] = []
        if lists is None:
            return
        self.specs = [
            SignalSpec(name=name, dtype="int", unit=unit, origin=ORIGIN) for name, unit in SIGNALS.values()
        ]
        given = {name: tuple(getattr(lists, name)) for name in SIGNALS}
        where = {name: f"filter.urls.{name}" for name in given}
        self.tables = [
            _table(where[name], name, given[name], state(where[name], given[name])) for name in _COLUMNS
        ]
        place = where["substrings"]
        self.machine = _machine(place, given["substrings"], state(place, given["substrings"]))

    def measure(self, urls: pa.StringArray) -> dict[str, pa.Array]:
        """int64 columns of the specs; null for a document without URL, and for a list that is not given."""
        if self.lists is None:
            return {}
        known = pc.greater(pc.fill_null(pc.binary_length(urls), 0), 0)
        data, offsets = text_buffers(pc.fill_null(urls, "").cast(pa.large_string()))
        found = np.zeros((len(urls), 5), np.int64)
        letters = np.empty(2 * int(offsets[-1] - offsets[0]) + 8, np.uint8)
        bounds = np.zeros(len(urls) + 1, np.int64)
        look_up: Any = url_kernels.look_up
        look_up(data, offsets, lower_table(), joins_table(), *self.tables, found, letters, bounds)
        columns = {name: found[:, column] for name, column in _COLUMNS.items()}
        columns["substrings"] = occurrences(self.machine, letters, bounds, whole_words=False)
        nothing = pa.scalar(None, pa.int64())
        return {
            SIGNALS[name][0]: pc.if_else(known, pa.array(values), nothing)
            if getattr(self.lists, name)
            else pa.nulls(len(urls), pa.int64())
            for name, values in columns.items()
        }


@lru_cache(maxsize=16)
def _table(where: str, name: str, paths: tuple[str, ...], states: object) -> Keys:
    """The keys of a list, read once per process for files in these `states`."""
    return keys(_entries(where, paths, _NORMAL[name]))


@lru_cache(maxsize=4)
def _machine(where: str, paths: tuple[str, ...], states: object) -> Automaton:
    return automaton(_entries(where, paths, _letters))


def _entries(where: str, paths: Sequence[str], normal: Callable[[str], list[str]]) -> list[str]:
    lines = read_entries(where, paths, str)
    return sorted({form for line in lines for form in normal(line)} - {""})


def _parsed(entry: str) -> tuple[str, str]:
    """(host, page) of an entry, as the kernels see those of a URL."""
    url = bytearray(lower(entry), "utf-8")
    start, host, page = url_kernels.parts(np.frombuffer(url, np.uint8), len(url))
    return url[start:host].decode("utf-8", "ignore"), url[start:page].decode("utf-8", "ignore")


def _hosts(entry: str) -> list[str]:
    """A host as it stands in URLs: in letters, and as `xn--` writes it."""
    if _PLAIN_HOST.fullmatch(entry) and "xn--" not in entry.lower():  # most, of millions
        return [entry.lower().strip(".")]
    host = _parsed(entry.removeprefix("*"))[0].lstrip(".")
    forms = [host]
    for before, after in (("idna", "ascii"), ("ascii", "idna")):
        try:
            forms.append(host.encode(before).decode(after))
        except UnicodeError:
            continue
    return forms


def _letters(entry: str) -> list[str]:
    """The letters and digits alone, as datatrove's lists are read: `sex-shop` is `sexshop`."""
    if entry.isascii():
        return [_NO_WORD.sub("", entry.lower())]
    joins: npt.NDArray[Any] = joins_table()
    return ["".join(char for char in lower(entry) if char != "_" and joins[ord(char)])]


_NORMAL: Final[dict[str, Callable[[str], list[str]]]] = {
    "domains": _hosts,
    "subdomains": _hosts,
    "urls": lambda entry: [_parsed(entry)[1]],
    "hard_words": _letters,
    "soft_words": _letters,
    "substrings": _letters,
}
