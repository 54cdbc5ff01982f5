"""A publication from its run to its last file, in the order in which a kill at any moment leaves nothing that looks finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.owner import Claim
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.publication.accounts import (
    public_facts,
    publish_card,
    publish_licences,
    publish_report,
)
from corpusmill.pipeline.inspect.publication.copies import publish_shards, publish_tokenizer
from corpusmill.pipeline.inspect.publication.croissant import publish_croissant
from corpusmill.pipeline.inspect.publication.destination import (
    Written,
    begin,
    end,
    read_publication,
    standing,
    sums_of,
    sweep,
    write_file,
)
from corpusmill.pipeline.inspect.publication.documents import publish_documents
from corpusmill.pipeline.inspect.publication.finished import (
    LEDGER,
    SHARD,
    TOKENIZER,
    Finished,
    check_destination,
    open_finished,
)
from corpusmill.pipeline.inspect.publication.ledger import publish_ledger
from corpusmill.pipeline.inspect.publication.private import cleaning_of, search_originals
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.publication import (
    SUMS,
    About,
    Checksums,
    DocumentFormat,
    Publication,
    PublishedRun,
)

VERSION = "1"  # raised with every change that may change a byte of a publication


class Wanted(NamedTuple):
    """What goes out, and how."""

    documents: DocumentFormat | None = "parquet"
    shards: bool = True
    ledger: bool = True
    file_mb: float = 512.0
    unredacted: bool = False
    about: About = About()


def publish(
    run: Folder, dest: Folder, wanted: Wanted, replace: bool, scheduler: Scheduler, log: Callable[[str], None]
) -> Publication:
    """Publish a finished run into `dest`, or go on with it after a kill; what is published already is left as it is.

    Raises `UserError` if the run is not one to publish (`open_finished`), or `dest` holds something else, or another publication
    and `replace` does not allow that it is replaced; `WorkError` if a file of the run is damaged.
    """
    found = open_finished(run, wanted.unredacted)
    check_destination(found, dest)
    if (
        wanted.documents is None
        and TOKENIZER not in found.manifests
        and not (wanted.shards and SHARD in found.manifests)
    ):
        raise UserError(
            f"{run}: nothing to publish: it has neither shards nor a tokenizer; leave out --documents none"
        )
    with Claim(dest, log) as claim:
        claim.check()
        key = _key(found, wanted)
        there = standing(dest)
        if there == key and (done := read_publication(dest)) is not None:
            sweep(dest)
            log(f"{dest}: published already, nothing to do")
            return done
        if there is not None and not replace:
            raise UserError(
                f"{dest}: holds another publication, of another run or with other options; give --replace, or another folder"
            )
        for one in (source for source, about in found.recipe.sources.items() if not about.license):
            log(f"warning: sources.{one}.license: not stated in the recipe")
        begin(dest, key)
        publication, files = _write(found, dest, wanted, key, scheduler, log)
        claim.check()
        end(dest, publication, files)
    return publication


def _key(found: Finished, wanted: Wanted) -> str:
    """A hash of all that the bytes of a publication depend on."""
    texts = [
        [path, checksum(file.read()) if (file := found.path(path)).exists() else ""]
        for _, source in sorted(found.recipe.sources.items())
        for path in source.license_files
    ]
    options = [*wanted[:-1], wanted.about.model_dump()]
    return hash_json([VERSION, found.record_xxh3, [i.hex() for i in found.taken], options, texts])


def _write(
    found: Finished, dest: Folder, wanted: Wanted, key: str, scheduler: Scheduler, log: Callable[[str], None]
) -> tuple[Publication, list[Written]]:
    """All files but `publication.json`."""
    files: list[Written] = []
    documents = shards = ledger = None
    if wanted.documents is not None:
        cleaning = cleaning_of(found)
        documents, some = publish_documents(
            found, dest, wanted.documents, wanted.file_mb, cleaning, scheduler
        )
        files += some
    if wanted.ledger and LEDGER in found.manifests:
        ledger, some = publish_ledger(found, dest, scheduler)
        files += some
    if wanted.shards and SHARD in found.manifests:
        shards, some = publish_shards(found, dest, scheduler)
        files += some
    tokenizer = publish_tokenizer(found, dest)
    files += tokenizer
    facts = public_facts(found, shards is not None)
    terms, some = publish_licences(found, dest)
    files += [*some, *publish_report(dest, facts)]
    files.append(publish_card(dest, facts, wanted.about, documents, shards, ledger))
    languages = sorted(row["language"] for row in facts["languages"] or () if row["kept"])
    files.append(publish_croissant(dest, found.recipe.name, wanted.about, terms, documents, languages, files))
    files.sort(key=lambda file: file.path)
    sums = write_file(dest, SUMS, sums_of(files))
    searched = search_originals(found, dest, [file.path for file in files], scheduler, log)
    publication = Publication(
        key=key,
        run=PublishedRun(
            name=found.recipe.name, corpusmill=found.record.corpusmill, record_xxh3=found.record_xxh3,
            stages={stage: one.key for stage, one in found.record.stages.items()},
        ),
        redacted=found.redacted, searched=searched, taken_down=len(found.taken), documents=documents, shards=shards,
        tokenizer=tokenizer[0].path if tokenizer else None, ledger=ledger, sources=terms, files=len(files),
        bytes=sum(file.bytes for file in files), checksums=Checksums(path=SUMS, sha256=sums.sha256),
    )  # fmt: skip
    return publication, [*files, sums]
