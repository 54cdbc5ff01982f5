"""What a web page says of itself: title, language, date, licence and author, out of its head, its marked-up links and JSON-LD."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

import orjson

LONGEST = 1_000  # characters of a field
LD_BYTES = 1 << 18  # of the JSON-LD that is looked at
LD_OBJECTS = 1_000
_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?)?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}")
_WHERE_DATE = (
    ("meta[property='article:published_time']", "content"), ("meta[itemprop='datePublished']", "content"),
    ("[itemprop='datePublished']", "datetime"), ("meta[name='date']", "content"), ("meta[name='DC.date']", "content"),
    ("meta[name='dcterms.created']", "content"), ("meta[name='pubdate']", "content"), ("meta[name='parsely-pub-date']", "content"),
    ("meta[name='citation_publication_date']", "content"),
)  # fmt: skip
_WHERE_LICENCE = (
    ("link[rel~='license']", "href"), ("a[rel~='license']", "href"), ("meta[name='dcterms.license']", "content"),
    ("meta[name='DC.rights']", "content"),
)  # fmt: skip
_WHERE_AUTHOR = (
    ("meta[name='author']", "content"), ("meta[name='DC.creator']", "content"), ("meta[name='citation_author']", "content"),
    ("meta[property='article:author']", "content"), ("a[rel~='author']", ""),
)  # fmt: skip
_WHERE_LANGUAGE = (
    ("html", "lang"), ("meta[http-equiv='content-language' i]", "content"), ("meta[property='og:locale']", "content"),
)  # fmt: skip


class PageFields(NamedTuple):
    """Each as the page has it, one line of text; None where it does not say. `published` is ISO 8601."""

    title: str | None = None
    language: str | None = None
    published: str | None = None
    license: str | None = None
    author: str | None = None

    def metadata(self) -> dict[str, str]:
        """The fields that the page has, by name."""
        return {name: value for name, value in self._asdict().items() if value}


def page_fields(tree: Any) -> PageFields:
    """The fields of a `resiliparse.parse.html.HTMLTree`. Markup goes before JSON-LD (https://schema.org)."""
    document = tree.document
    if document is None:
        return PageFields()
    linked = list(_linked_data(document))
    language = next(
        (value for value in _values(document, _WHERE_LANGUAGE) if _LANGUAGE.fullmatch(value)), None
    )
    dates = (
        *_values(document, _WHERE_DATE),
        *_named(linked, "datePublished"),
        *_values(document, (("article time", "datetime"),)),
    )
    published = next((found for value in dates if (found := iso_date(value))), None)
    authors = (*_values(document, _WHERE_AUTHOR), *_named(linked, "author"))
    return PageFields(
        _line(tree.title),
        language and language.replace("_", "-"),
        published,
        next(iter((*_values(document, _WHERE_LICENCE), *_named(linked, "license"))), None),
        next((author for author in authors if "://" not in author), None),
    )


def iso_date(value: str) -> str | None:
    """A date, or a date and time, as ISO 8601; None if it is none, or none that the calendar has."""
    match = _DATE.match(value.strip())
    if match is None:
        return None
    year, month, day, time, zone = match.groups()
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return None
    return f"{year}-{month}-{day}" + (f"T{time}{zone or ''}" if time else "")


def _values(document: Any, places: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """The attribute (or text, for "") of the first element that each selector finds."""
    for selector, attribute in places:
        found = document.query_selector(selector)
        if found is None:
            continue
        value = _line(found.getattr(attribute) if attribute else found.text)
        if value:
            yield value


def _line(value: str | None) -> str | None:
    """A value on one line, without control characters; None if nothing is left."""
    line = " ".join(
        "".join(char if char.isprintable() else " " for char in (value or "")[: 4 * LONGEST]).split()
    )
    return line[:LONGEST] or None


def _linked_data(document: Any) -> Iterator[dict[str, Any]]:
    """The objects of the page's JSON-LD, outermost first."""
    seen = 0
    for script in document.query_selector_all("script[type='application/ld+json']"):
        text = script.text
        seen += len(text)
        if seen > LD_BYTES:
            return
        try:
            values = [orjson.loads(text)]
        except orjson.JSONDecodeError:
            continue
        for value in values:  # grows as it is walked
            if len(values) > LD_OBJECTS:
                break
            if isinstance(value, list):
                values += value[:LD_OBJECTS]
            elif isinstance(value, dict):
                yield value
                values += [value[key] for key in ("@graph", "mainEntity", "mainEntityOfPage") if key in value]


def _named(objects: list[dict[str, Any]], key: str) -> Iterator[str]:
    """The values of a key, of an object its name or URL."""
    for found in objects:
        value = found.get(key)
        for each in value[:1] if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                each = each.get("name") or each.get("url")
            if isinstance(each, str) and (line := _line(each)):
                yield line
