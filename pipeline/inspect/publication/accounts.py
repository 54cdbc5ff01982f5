"""What a publication says of itself to people: the run's report and data card without any text of a document, and the licences.

The report of a run shows excerpts, also of documents that were removed, and the paths of its input. Neither goes out: every list of
excerpts becomes empty, and of the recipe's paths only public addresses stay.
"""

from __future__ import annotations

import json
import re
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.escape import code_block, markdown
from corpusmill.common.format import masked, number, plain_size, without_query
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.publication.destination import (
    LICENSES,
    README,
    REPORT_FIGURES,
    REPORT_PAGE,
    Written,
    write_file,
)
from corpusmill.pipeline.inspect.publication.documents import SUFFIX
from corpusmill.pipeline.inspect.publication.finished import REPORT, Finished
from corpusmill.schemas.publication import (
    CROISSANT,
    PUBLICATION,
    SUMS,
    About,
    PublishedDocuments,
    PublishedLedger,
    PublishedShards,
    Terms,
)

Facts = dict[str, Any]
# A list of rows with one of these shows documents or names raw records.
_EXCERPT = frozenset(
    {"text", "removed_text", "kept_text", "before", "after", "locator", "source_id", "url", "detail"}
)
_PUBLIC = re.compile(r"(https|hf)://")
_PLACES = ("paths", "files_from", "license_files")  # of a source
_WORDS = ("license", "attribution", "description", "homepage", "citation")  # of a source, as they are


def public_facts(found: Finished, shards: bool) -> Facts:
    """The figures of the run's report, without texts of documents, names of raw records and paths of this machine; without the section
    on shards where none are published."""
    facts = _without_excerpts(json.loads(found.read(REPORT, "report.json")))
    facts["samples"] = {what: [] for what in facts["samples"]}
    facts["planted"] = None  # planted documents are named by their files
    if not shards:
        facts["shards"] = None
    for row in (facts.get("contamination") or {}).get("sets", ()):
        for item in row["worst"]:
            item["file"] = _name(item["file"])
    for groups in ("sources", "languages"):  # a tokenizer that was compared is named by its path
        for row in (facts.get("tokenizer") or {}).get(groups, {}).values():
            if isinstance(row.get("compare"), dict):
                row["compare"] = {_name(path): value for path, value in row["compare"].items()}
    facts["reproduce"]["recipe"] = _public_recipe(facts["reproduce"]["recipe"])
    return dict(facts)


def _without_excerpts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_excerpts(item) for key, item in value.items()}
    if isinstance(value, list):
        if any(isinstance(item, dict) and not _EXCERPT.isdisjoint(item) for item in value):
            return []
        return [_without_excerpts(item) for item in value]
    return value


def _public_recipe(recipe: Facts) -> Facts:
    """A recipe without places that are nobody else's concern: public addresses of sources stay, and of other paths their names."""
    sources = {}
    for name, source in recipe.get("sources", {}).items():
        kept = {key: value for key, value in source.items() if key not in _PLACES}
        public = [masked(without_query(path)) for path in source.get("paths", ()) if _PUBLIC.match(path)]
        words = {key: kept.pop(key) for key in _WORDS if key in kept}
        sources[name] = {**({"paths": public} if public else {}), **_named(kept), **words}
    return {**_named({key: value for key, value in recipe.items() if key != "sources"}), "sources": sources}


def _named(value: Any) -> Any:
    """A JSON value whose strings with a path in them are its last part."""
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return _name(value) if isinstance(value, str) else value


def _name(path: str) -> str:
    return re.split(r"[/\\]", without_query(path).rstrip("/\\"))[-1] if re.search(r"[/\\]", path) else path


def publish_report(dest: Folder, facts: Facts) -> list[Written]:
    """Write the report's page and figures."""
    import orjson

    from corpusmill.pipeline.report.page import render

    figures = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return [
        write_file(dest, REPORT_PAGE, render(facts, public=True).encode()),
        write_file(dest, REPORT_FIGURES, figures),
    ]


def publish_card(
    dest: Folder, facts: Facts, about: About, documents: PublishedDocuments | None, shards: PublishedShards | None,
    ledger: PublishedLedger | None,
) -> Written:  # fmt: skip
    """Write the data card, by whose head the Hub and `datasets.load_dataset` find the data."""
    from corpusmill.pipeline.report.card import card, licences

    front: Facts = {"configs": _configs(documents, shards)} if documents or shards else {}
    if (
        documents and documents.format == "jsonl"
    ):  # whose types readers would guess, from the first lines of each file
        features = [{"name": name, "dtype": "string"} for name in documents.columns]
        front["dataset_info"] = [
            {"config_name": config["config_name"], "features": features} for config in front["configs"]
        ]
    if about.title:
        front["pretty_name"] = about.title
    if about.license:
        (known,) = licences({"sources": [{"license": about.license}]})
        front |= {"license": known} | ({"license_name": about.license} if known == "other" else {})
    words = {name: getattr(about, name) for name in ("creator", "contact", "citation")}
    structure = _structure(documents, shards, ledger)
    return write_file(dest, README, card(facts, {"front": front, "structure": structure, **words}).encode())


def _configs(documents: PublishedDocuments | None, shards: PublishedShards | None) -> list[Facts]:
    """All sources as the default configuration, and each source as one: of the documents, or else of the shards."""
    files: dict[str, dict[str, list[str]]] = {"default": {}}
    if documents:
        suffix = SUFFIX[documents.format]
        places = [(d.source, d.split, f"data/{d.source}/{d.split}-*.{suffix}") for d in documents.sets]
    else:
        tokens = [each for each in shards.sets if each.tokens] if shards else []
        places = [(each.source, each.split, f"shards/{each.source}/{each.split}/*.tar") for each in tokens]
    for source, split, path in places:
        for name in ("default", source):
            files.setdefault(name, {}).setdefault(split, []).append(path)
    return [
        {
            "config_name": name,
            **({"default": True} if name == "default" else {}),
            "data_files": [{"split": split, "path": paths} for split, paths in sorted(splits.items())],
        }
        for name, splits in files.items()
        if splits
    ]


def _structure(
    documents: PublishedDocuments | None, shards: PublishedShards | None, ledger: PublishedLedger | None
) -> str:
    """The files of the publication, as Markdown."""
    lines = []
    if documents:
        form = {"parquet": "Parquet", "jsonl": "JSON lines (zstd)"}[documents.format]
        columns = ", ".join(f"`{name}`" for name in documents.columns)
        lines += [
            f"Documents as {form}: `data/<source>/<split>-*.{SUFFIX[documents.format]}`, with the columns {columns}.", "",
            "| Source | Split | Documents | Text | Files |", "|---|---|---:|---:|---:|",
        ]  # fmt: skip
        lines += [
            f"| {markdown(one.source)} | {one.split} | {number(one.documents)} | {plain_size(one.text_bytes)} |"
            f" {number(len(one.files))} |"
            for one in documents.sets
        ]
        lines.append("")
    if shards:
        lines += [
            "The same documents as tokens, in WebDataset tars: `shards/<source>/<split>/*.tar`, described by `shards/index.json`;"
            " `tokenizer/` holds their tokenizer.", "",
            "| Source | Split | Documents | Tokens |", "|---|---|---:|---:|",
        ]  # fmt: skip
        lines += [
            f"| {markdown(each.source)} | {each.split} | {number(each.documents)} | {number(each.tokens)} |"
            for each in shards.sets
        ]
        lines.append("")
    if ledger:
        lines += [
            f"`ledger/*.parquet` says of each record of the input ({number(ledger.rows)}) what became of it: outcome,"
            " stage, rule, value and threshold, and the document that it is a copy of.", "",
        ]  # fmt: skip
    lines.append(
        f"`{CROISSANT}` describes the files for programs, `{SUMS}` has the checksum of each (`sha256sum -c {SUMS}`), and"
        f" `{PUBLICATION}` what was published from which run. `{LICENSES}` states the terms of each source."
    )
    return "\n".join(lines)


def publish_licences(found: Finished, dest: Folder) -> tuple[list[Terms], list[Written]]:
    """Write the terms of every source, and the licences' texts that the recipe names.

    Raises `UserError` for a text that is not there.
    """
    terms: list[Terms] = []
    written: list[Written] = []
    for name, source in sorted(found.recipe.sources.items()):
        files: dict[str, Written] = {}
        for path in source.license_files:
            file = found.path(path)
            target = f"licenses/{name}/{file.name}"
            where = f"sources.{name}.license_files: {path}"
            if target in files:
                raise UserError(
                    f"{where}: another of its licences has the same name; give one of them another name"
                )
            try:
                files[target] = write_file(dest, target, file.read())
            except FileNotFoundError:
                raise UserError(
                    f"{where}: no such file; bring it back, or leave it out of the recipe"
                ) from None
        stated = {word: getattr(source, word) for word in ("license", "attribution", "homepage", "citation")}
        terms.append(Terms(source=name, files=sorted(files), **stated))
        written += files.values()
    return terms, [*written, write_file(dest, LICENSES, _licences(terms).encode())]


def _licences(terms: list[Terms]) -> str:
    lines = ["# Licences", "", "The text of each source is under the terms of that source."]
    for one in terms:
        lines += ["", f"## {markdown(one.source)}", ""]
        lines.append(f"- Licence: {markdown(one.license) if one.license else 'not stated by the publisher'}")
        lines += [f"- Attribution: {markdown(one.attribution)}"] if one.attribution else []
        lines += [f"- Home page: <{one.homepage}>"] if one.homepage else []
        lines += [f"- Text: [{markdown(path)}]({path})" for path in one.files]
        lines += ["", "Cite as:", "", code_block(one.citation)] if one.citation else []
    return "\n".join(lines) + "\n"
