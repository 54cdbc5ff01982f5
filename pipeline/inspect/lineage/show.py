"""What was traced and found, as JSON and in words. No text but the cleaned one is shown, unless asked for: what an edit cut
or replaced may be what had to go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corpusmill.common.escape import spelled
from corpusmill.pipeline.inspect.lineage.edits import Piece, StageEdits
from corpusmill.pipeline.inspect.lineage.find import Found
from corpusmill.pipeline.inspect.lineage.raw import Raw, Span
from corpusmill.pipeline.inspect.lineage.trace import AROUND, Traced
from corpusmill.schemas.tables import KEPT, readable

Explain = Callable[[dict[str, Any]], str]  # a ledger row in words


def as_json(traced: Traced, show_redacted: bool = False) -> dict[str, Any]:
    """A traced stretch as JSON values."""
    stretch, document = traced.stretch, traced.document
    found: dict[str, Any] = {
        "address": str(traced.address._replace(first=stretch.first, last=stretch.last)), "shard": traced.address.stem, "block": traced.block, "split": traced.split,
        "source": traced.source, "doc_id": stretch.doc_id.hex(), "end_of_document": stretch.ends,
        "tokens": [
            {"token": stretch.first + i, "id": token, "text": part.decode("utf-8", "replace"), "bytes": part.hex()}
            for i, (token, part) in enumerate(zip(traced.tokens, traced.parts, strict=True))
        ],
        "cleaned": {"start": stretch.start, "end": stretch.end, **_around(traced)},
    }  # fmt: skip
    if document.hops:
        run, row, _ = document.hops[-1]
        values = document.hops[0].row.values
        found |= {
            "run": run.url, "partition": row.partition, "locator": row.values["locator"],
            "source_id": row.values["source_id"], "url": row.values["url"], "cluster_id": readable(values["cluster_id"]),
            "pieces": [_piece(piece, traced, show_redacted) for piece in traced.pieces],
            "stages": [_stage(stage, at) for stage, at in zip(document.chain, _places(traced), strict=True)],
            "decisions": [readable(hop.row.values) for hop in document.hops],
        }  # fmt: skip
    if document.raw is not None:
        found["raw"] = _raw(document.raw, traced.spans)
    found["lineage_ends"] = document.end or None
    return found


def _around(traced: Traced) -> dict[str, str]:
    text, start, end = traced.document.text, traced.stretch.start, traced.stretch.end
    if text is None:
        return {}
    low, high = max(start - AROUND, 0), end + AROUND
    return {"text": text[start:end], "before": text[low:start], "after": text[end:high]}


def _piece(piece: Piece, traced: Traced, show_redacted: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "start": piece.start, "end": piece.end, "ingested_start": piece.old_start, "ingested_end": piece.old_end,
        "same": not piece.inside,
    }  # fmt: skip
    if piece.inside:
        found["written_by"] = [
            {"stage": one.stage, "kinds": list(one.kinds), "offset": one.start, "length": one.end - one.start}
            for one in piece.inside
        ]
        if show_redacted and traced.document.ingested is not None:
            found["stands_for"] = traced.document.ingested[piece.old_start : piece.old_end]
    return found


def _places(traced: Traced) -> list[int]:
    """The first character of the stretch in the text that each stage gave, in the order of the work."""
    place, found = traced.stretch.start, []
    for stage in reversed(traced.document.chain):
        found.append(place)
        if traced.pieces:
            place = stage.back(place, place + 1)[0].old_start
        elif place:  # the end of the document
            place = stage.back(place - 1, place)[-1].old_end
    return found[::-1]


def _stage(stage: StageEdits, place: int) -> dict[str, Any]:
    edits, growth = stage.before(place)
    return {"stage": stage.stage, "edits": len(stage.edits), "edits_before": edits, "shift": growth}


def _raw(raw: Raw, spans: list[Span]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "state": raw.state, "file": raw.file, "record": raw.record, "format": raw.format or None,
        "bytes_of": raw.unit or None, "note": raw.note or None, "spans": [span._asdict() for span in spans],
    }  # fmt: skip
    if raw.mended is not None:
        found["mended"] = len(raw.mended.edits)
    return found


def in_words(traced: Traced, explain: Explain, show_redacted: bool = False) -> str:
    """A traced stretch for a terminal; `explain` puts a ledger row in words."""
    stretch, document = traced.stretch, traced.document
    values = as_json(traced, show_redacted)
    here = traced.address._replace(shard=traced.address.stem, first=stretch.first, last=stretch.last)
    lines = [str(here), _tokens(traced)]
    lines.append(_line("document", f"{stretch.doc_id.hex()}, {traced.split}"))
    lines.append(_line("cleaned", _cleaned(traced)))
    lines += [_line("ingested", _ingested(piece, document.text)) for piece in values.get("pieces", ())]
    for stage in values.get("stages", ()):
        if count := stage["edits_before"]:
            edits = f"{count} {'edit' if count == 1 else 'edits'} of {stage['stage']} before it"
            lines.append(_line("edits", f"{edits}: {stage['shift']:+,} characters"))
    if document.raw is not None:
        lines += _raw_lines(document.raw, traced.spans)
    if document.end:
        lines.append(_line("ends here", document.end))
    for hop in document.hops:
        lines += [f"  {line}" for line in explain({**readable(hop.row.values), "signals": {}}).split("\n")]
    return "\n".join(map(spelled, lines))


def _line(name: str, text: str) -> str:
    return f"  {name:<11} {text}"


def _tokens(traced: Traced) -> str:
    if len(traced.tokens) == 1:
        shown = "the end of a document" if traced.stretch.ends else _shown(traced.parts[0])
        return _line("token", f"{traced.tokens[0]}: {shown}")
    count = len(traced.tokens) - traced.stretch.ends
    end = ", and the end of the document" if traced.stretch.ends else ""
    return _line("tokens", f"{count}: {_shown(b''.join(traced.parts))}{end}")


def _shown(part: bytes) -> str:
    try:
        return repr(part.decode())
    except UnicodeDecodeError:
        return f"{part.decode('utf-8', 'replace')!r} (bytes {part.hex(' ')}: it ends or begins inside a character)"


def _cleaned(traced: Traced) -> str:
    stretch, text = traced.stretch, traced.document.text
    of = "" if text is None else f" of {len(text):,}"
    if stretch.start == stretch.end:
        return f"after the last character{of}"
    around = _around(traced)
    shown = f": …{around['before']}⟦{around['text']}⟧{around['after']}…" if around else ""
    return f"characters {_range(stretch.start, stretch.end - 1)}{of}{shown}"


def _ingested(piece: dict[str, Any], text: str | None) -> str:
    where = f"characters {_range(piece['ingested_start'], piece['ingested_end'] - 1)}"
    if piece["same"]:
        return f"{where}, the same"
    by = ", ".join(f"{edit['stage']} ({', '.join(edit['kinds'])})" for edit in piece["written_by"])
    what = "" if text is None else f" {text[piece['start'] : piece['end']]!r}"
    shown = f": {piece['stands_for']!r}" if "stands_for" in piece else ""
    return f"{where}: inside what {by} wrote in their place{what and ', here' + what}{shown}"


# What is known of the bytes in each state of `Raw`; of those that are `equal` their places tell enough.
_STATES = {
    "gone": "not there any more",
    "unfound": "not found from here",
    "differs": "read again it gives another text",
    "unchecked": "as far as can be known: the text as ingested is no longer there to compare with",
}


def _raw_lines(raw: Raw, spans: list[Span]) -> list[str]:
    note = f" ({raw.note})" if raw.note else ""
    lines = [_line("source", f"{raw.file}, record {raw.record}{note}")]
    if raw.state in _STATES:
        lines.append(_line("bytes", _STATES[raw.state]))
    for span in spans:
        how = "" if span.exact else ", from which it was made"
        lines.append(_line("bytes", f"{_range(span.start, span.end - 1)} of {raw.unit}{how}"))
    if raw.mended is not None and raw.mended.edits:
        kinds = sorted({kind for edit in raw.mended.edits for kind in edit.kinds})
        count = len(raw.mended.edits)
        places = f"in {count} {'place' if count == 1 else 'places'}"
        lines.append(_line("mended", f"by ingest, {places}: {', '.join(kinds)}"))
    return lines


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def found_json(found: Found) -> dict[str, Any]:
    """A found document as JSON values."""
    values = {} if found.row is None else readable(found.row.values)
    return {
        "doc_id": found.doc_id.hex(), **{name: values.get(name) for name in ("source", "source_id", "locator", "url")},
        "outcome": values.get("outcome"), "stage": values.get("stage"), "rule": values.get("rule"),
        "taken_down": found.taken, "tokens": sum(place.last - place.first + 1 for place in found.places),
        "places": [{**place._asdict(), "address": place.address} for place in found.places],
        "texts": [text._asdict() for text in found.texts],
    }  # fmt: skip


def found_in_words(found: Found) -> str:
    """A found document for a terminal."""
    values = found_json(found)
    lines = [f"{values['doc_id']}  {values['source'] or ''}  {values['locator'] or ''}".rstrip()]
    if values["outcome"] not in (None, KEPT):
        lines.append(_line("no tokens", f"{values['outcome']} at {values['stage']} by {values['rule']}"))
    elif not found.places and (why := _no_tokens(found)):
        lines.append(_line("no tokens", why))
    for place in found.places:
        characters = _range(place.start, max(place.end - 1, place.start))
        end = ", to the end of the document" if place.ends else ""
        lines.append(_line(place.split, f"{place.address}  characters {characters}{end}"))
    for text in found.texts:
        lines.append(_line(text.split, f"{text.tar}  sample {text.number}, {text.member}"))
    return "\n".join(map(spelled, lines))


def _no_tokens(found: Found) -> str:
    """Why a kept document has none; "" if its text is in the shards, and nothing was asked of tokens."""
    if found.taken:
        return f"taken out of the shards at {found.taken}"
    if found.length is not None:
        return f"of these characters: it has {found.length:,}"
    if found.cut:
        return "of these characters: they were cut"
    return "" if found.texts else "no shard has any"
