"""Small corpora with known fates, the ordinary one and a hostile one."""

from __future__ import annotations

from tests.pipeline.report.made import Doc

LONG = "word " * 60
SECRET = "mail jane.roe@mail.example.org at once"


def ordinary() -> list[list[Doc]]:
    """14 records in two partitions: 7 kept, 5 removed (2 filter, 2 near, 1 exact), 1 skipped, 1 quarantined."""
    original = Doc("a.jsonl#0", "The ship sails at dawn. " * 40, language="en", words=200)
    edited = Doc(
        "a.jsonl#1", f"Write to x@y.org or 192.0.2.7. {LONG}", language="en", words=70,
        edits=[("email", 9, 7), ("ip", 20, 9)], redacted=f"Write to <EMAIL> or <IP>. {LONG}",
    )  # fmt: skip
    first = [
        original,
        edited,
        Doc("a.jsonl#2", "short", gone=("filter", "quality.words"), failed=[("quality.words", 1.0, 50.0)], words=1,
            language="en"),
        Doc("a.jsonl#3", f"kurz und klein {SECRET}", gone=("filter", "quality.words"), words=3, language="de",
            failed=[("quality.words", 3.0, 50.0), ("language.keep", 0.9, 0.65)]),
        Doc("a.jsonl#4", "{broken", gone=("ingest", "malformed_json")),
        Doc("a.jsonl#5", "moved", gone=("ingest", "skip.redirect")),
        Doc("a.jsonl#6", "x" * 1024, language="en", words=90),
        Doc("a.jsonl#7", "y" * 1023, language="fr", words=80),
    ]  # fmt: skip
    second = [
        Doc("b.jsonl#0", "The ship sails at dawn. " * 40, "books", gone=("dedup", "dedup.exact"), copy_of=original,
            jaccard=1.0, language="en"),
        Doc("b.jsonl#1", "The ship sails at dawn. " * 39 + "Or not.", "books", gone=("dedup", "dedup.minhash"),
            copy_of=original, jaccard=0.91, language="en"),
        Doc("b.jsonl#2", "The boat sails at dawn. " * 40, "books", gone=("dedup", "dedup.minhash"),
            copy_of=original, jaccard=0.82, language="en"),
        Doc("b.jsonl#3", "A book. " + LONG, "books", language="en", words=61, source_id="own-3"),
        Doc("b.jsonl#4", "Another book. " + LONG, "books", language="en", words=62),
        Doc("b.jsonl#5", "A third book. " + LONG, "books", language="en", words=63),
    ]  # fmt: skip
    return [first, second]


HOSTILE = [
    "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)>",
    "abc\u202egnp.exe\u202c \u2066isolated\u2069 zero\u200bwidth \x00 \x1b[31m \ufeff \U000e0041",
    "W" * 5_000,
    "{{ 7 * 7 }} {% raw %} ${x} <!-- ]]> &lt;b&gt; ' \" ` -->",
    "Z\u0351\u0352\u0353" + "\u0360" * 400 + " algo",
    "日本語の文章です。" * 80,
    "مرحبا بالعالم هذا نص من اليمين إلى اليسار " * 20,
    "https://tracker.example/pixel.gif <link rel=stylesheet href=//evil.example/x.css>",
    "",
]


def hostile() -> list[list[Doc]]:
    """Each hostile text once kept and once removed; names of records are as hostile as their texts."""
    kept = [Doc(f"k{i}<b>\u202e{'n' * 300}", text, language="en") for i, text in enumerate(HOSTILE)]
    gone = [
        Doc(f"r{i}", text, gone=("filter", "quality.<i>words</i>"), words=1,
            failed=[("quality.<i>words</i>", 1.0, 50.0)])
        for i, text in enumerate(HOSTILE)
    ]  # fmt: skip
    bad = [Doc("q\u202e<script>", "?", gone=("ingest", "malformed<script>"))]
    copies = [
        Doc(f"c{i}", text + " tail", gone=("dedup", "dedup.minhash"), copy_of=kept[i], jaccard=0.85)
        for i, text in enumerate(HOSTILE)
    ]
    return [kept + gone, bad + copies]
