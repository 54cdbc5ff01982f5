"""Readers of translators' files: (name of the language, text) of each message, as it stands, markup and all."""

from __future__ import annotations

import gettext
import html
import io
import json
import re
import struct
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

Message = tuple[str, str]


def messages(path: str, data: bytes, package: str) -> Iterator[Message]:
    """The messages of one file of a package, none if it is no catalogue. A damaged one ends early."""
    try:
        yield from _read(PurePosixPath(path), data, package)
    except (ValueError, KeyError, struct.error, OSError, zipfile.BadZipFile, IndexError):
        return


def _read(path: PurePosixPath, data: bytes, package: str) -> Iterator[Message]:
    name, suffix = path.name, path.suffix
    if suffix == ".mo" and b"\x95\x04\x12\xde"[::-1] in (data[:4], data[:4][::-1]):
        for source, text in mo(data):
            yield "en", source
            yield _locale(path), text
    elif suffix == ".qm":
        for text in qm(data):
            yield re.sub(r"^[a-z]+_(?=[a-z]{2,3}(_|$))", "", path.stem), text
    elif suffix == ".json" and ("i18n" in path.parts or "translations" in path.parts) and ".min." not in name:
        for text in leaves(json.loads(data)):
            yield path.stem, text
    elif suffix == ".xpi":
        for text in xpi(data):
            yield package.rsplit("l10n-", 1)[-1], text
    elif suffix == ".inc" and "localization" in path.parts:
        for text in re.findall(r"=\s*'((?:[^'\\]|\\.)*)';", data.decode("utf-8", "strict")):
            yield path.parent.name, text.replace("\\'", "'")
    elif suffix in (".txt", ".php") and "lang" in path.parts and package == "dokuwiki":
        text = data.decode("utf-8")
        own = re.findall(r"=\s*'((?:[^'\\]|\\.)*)';", text) if suffix == ".php" else text.split("\n\n")
        for part in own:
            yield path.parent.name, part
    elif re.fullmatch(r"description\.\w+\.utf8", name):
        for part in re.split(r"</p>|<h\d>|</li>", data.decode("utf-8")):
            yield name.split(".")[1], part
    elif suffix == ".html" and package.startswith("libreoffice-help-"):
        for part in re.findall(r"<p [^>]*>(.*?)</p>", data.decode("utf-8"), re.DOTALL):
            yield package.removeprefix("libreoffice-help-"), part
    elif suffix == ".desktop":
        yield from re.findall(
            r"^(?:Name|Comment|GenericName)\[([\w@.]+)\]=(.+)$", data.decode("utf-8"), re.MULTILINE
        )
    elif suffix == ".xml" and re.search(r"mime|metainfo|appdata|xkb|schemas", str(path)):
        yield from re.findall(r'xml:lang="([\w@.-]+)"[^>]*>([^<]{8,})<', data.decode("utf-8"))
    elif package.startswith("fortunes-") and "fortunes" in path.parts and not suffix:
        for part in data.decode("utf-8").split("\n%\n"):
            yield package.removeprefix("fortunes-"), part


def _locale(path: PurePosixPath) -> str:
    """The directory before LC_MESSAGES, or what the file's own name ends in (`admin-network-pt_BR.mo`)."""
    if path.parent.name == "LC_MESSAGES":
        return path.parent.parent.name
    return re.sub(r"^(admin-network-|admin-|continents-cities-)", "", path.stem)


def mo(data: bytes) -> Iterator[tuple[str, str]]:
    """(English, translation) of a gettext catalogue where they are not the same."""
    catalogue = gettext.GNUTranslations(io.BytesIO(data))._catalog  # type: ignore[attr-defined]
    for key, text in catalogue.items():
        source = (key[0] if isinstance(key, tuple) else key).split("\x04")[-1]
        if source and text and text != source:
            yield source, text


def qm(data: bytes) -> Iterator[str]:
    """The translations of a compiled Qt catalogue: tag 3 of the section of messages, UTF-16, big endian."""
    at = 16
    while at + 5 <= len(data):
        kind, size = struct.unpack(">BI", data[at : at + 5])
        at += 5
        if kind == 0x69:
            yield from _qm_messages(data[at : at + size])
        at += size


def _qm_messages(section: bytes) -> Iterator[str]:
    at = 0
    while at < len(section):
        tag = section[at]
        at += 1
        if tag == 1:
            continue
        if tag == 5:  # a hash
            at += 4
            continue
        size = struct.unpack(">I", section[at : at + 4])[0]
        at += 4
        if size == 0xFFFFFFFF:
            continue
        if tag == 3:
            yield section[at : at + size].decode("utf-16-be")
        at += size


def xpi(data: bytes) -> Iterator[str]:
    """The messages of a Mozilla language pack (.properties, .dtd, .ftl)."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        for name in packed.namelist():
            if name.endswith((".properties", ".dtd", ".ftl")):
                text = packed.read(name).decode("utf-8", "replace")
                if name.endswith(".dtd"):
                    yield from re.findall(r'<!ENTITY\s+\S+\s+"([^"]*)"', text)
                else:
                    yield from re.findall(
                        r"^[ \t]*(?:[\w.-]+[ \t]*=|(?=\s{4}\w)[ \t]+)[ \t]*(.+)$", text, re.MULTILINE
                    )


def leaves(value: object) -> Iterator[str]:
    """All strings of a JSON document, but those under `@metadata`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            if key != "@metadata":
                yield from leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)


_MARKUP = re.compile(
    r"<[^<>]{1,200}>|https?://\S+|\{\{[^{}|]*\||\{\{[^{}]*\}\}|\[\[[^\[\]|]*\||\[\[|\]\]|\}\}|\{[^{}]{0,60}\}"
    r"|%(?:\d+\$)?\(?[\w.-]*\)?[sdifgxulcp@]|%L?\d+|%%\w+%%|\$\w+|\$\{[^}]*\}|\([&_~]\w\)|\S*[/\\]\S*[/\\]\S*|\S+@\S+"
    r"|--?[a-z][\w-]+|\S+\(\)|\w+_\w+|\\[nrtu]|'''?"
)
_ACCELERATOR = re.compile(r"[&_~](?=\w)")
_SPACE = re.compile(r"\s+")


@lru_cache(maxsize=1 << 17)
def plain(text: str) -> str:
    """A message without markup, placeholders, addresses, paths, options and accelerator keys; one line."""
    text = html.unescape(text) if "&" in text and ";" in text else text
    return _SPACE.sub(" ", _ACCELERATOR.sub("", _MARKUP.sub(" ", text))).strip()
