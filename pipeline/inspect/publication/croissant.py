"""Croissant 1.0 metadata (JSON-LD, https://docs.mlcommons.org/croissant/docs/croissant-spec.html) of a publication: every file with its
SHA-256, and the documents of each split as a set of records. Paths are relative to `croissant.json`."""

from __future__ import annotations

import json
from typing import Any

from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.publication.destination import Written, write_file
from corpusmill.pipeline.inspect.publication.documents import SUFFIX
from corpusmill.schemas.publication import CROISSANT, About, PublishedDocuments, Terms

# The context that the specification gives, word for word: validators compare it.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FORMATS = {
    "parquet": "application/x-parquet", "zst": "application/zstd", "tar": "application/x-tar", "json": "application/json",
    "html": "text/html", "md": "text/markdown", "txt": "text/plain",
}  # fmt: skip
_LINES = "application/jsonlines"
_MEANING = {
    "doc_id": "Id of the document, by which the ledger and the shards name it",
    "source": "Source that the document comes from",
    "url": "Address of the document",
    "date": "Date of the document, ISO 8601, as far as its source knows it",
    "language": "Language that was identified, ISO 639",
    "metadata": "What else the record carried: a JSON object",
    "text": "The text",
}


def publish_croissant(
    dest: Folder, name: str, about: About, terms: list[Terms], documents: PublishedDocuments | None,
    languages: list[str], files: list[Written],
) -> Written:  # fmt: skip
    """Write `croissant.json` on `files`."""
    value = croissant(name, about, terms, documents, languages, files)
    return write_file(dest, CROISSANT, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def croissant(
    name: str, about: About, terms: list[Terms], documents: PublishedDocuments | None, languages: list[str],
    files: list[Written],
) -> dict[str, Any]:  # fmt: skip
    """The metadata. What nobody stated (`About`) is left out."""
    licences = [about.license] if about.license else sorted({one.license for one in terms if one.license})
    citations = [about.citation] if about.citation else [one.citation for one in terms if one.citation]
    known = {
        "description": about.description
        or f"Text for training language models, from {quantity(len(terms), 'source')}.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "license": licences,
        "creator": {"@type": "sc:Organization", "name": about.creator} if about.creator else None,
        "url": about.url,
        "version": about.version,
        "datePublished": about.date,
        "citeAs": "\n\n".join(citations),
        "inLanguage": languages,
        "keywords": ["pretraining", "text"],
    }
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": about.title or name,
        **{key: value for key, value in known.items() if value},
        "distribution": [*map(_file, sorted(files, key=lambda file: file.path)), *_file_sets(documents)],
        **({"recordSet": _record_sets(documents)} if documents else {}),
    }


def _file(file: Written) -> dict[str, Any]:
    suffix = file.path.rpartition(".")[2]
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        "contentUrl": file.path,
        "contentSize": f"{file.bytes} B",
        "encodingFormat": _FORMATS.get(suffix, "application/octet-stream"),
        "sha256": file.sha256,
    }


def _splits(documents: PublishedDocuments) -> list[str]:
    return sorted({one.split for one in documents.sets})


def _file_sets(documents: PublishedDocuments | None) -> list[dict[str, Any]]:
    if documents is None:
        return []
    suffix = SUFFIX[documents.format]
    return [
        {
            "@type": "cr:FileSet",
            "@id": f"{split}-files",
            "name": f"{split}-files",
            "encodingFormat": _FORMATS["parquet"] if documents.format == "parquet" else _LINES,
            "includes": f"data/*/{split}-*.{suffix}",
        }
        for split in _splits(documents)
    ]


def _record_sets(documents: PublishedDocuments) -> list[dict[str, Any]]:
    return [
        {
            "@type": "cr:RecordSet",
            "@id": split,
            "name": split,
            "description": f"Documents of the split {split}",
            "key": {"@id": f"{split}/doc_id"},
            "field": [
                {
                    "@type": "cr:Field",
                    "@id": f"{split}/{column}",
                    "name": f"{split}/{column}",
                    "description": _MEANING[column],
                    "dataType": "sc:Text",
                    "source": {"fileSet": {"@id": f"{split}-files"}, "extract": _extract(documents, column)},
                }
                for column in documents.columns
            ],
        }
        for split in _splits(documents)
    ]


def _extract(documents: PublishedDocuments, column: str) -> dict[str, str]:
    return {"column": column} if documents.format == "parquet" else {"jsonPath": f"$.{column}"}
