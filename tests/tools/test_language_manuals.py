"""Readers of running text and of words' forms out of packages; priors of languages by how common they are."""

from __future__ import annotations

import gzip
import json
import lzma

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tools import language_judged, language_manuals, language_profile
from tools.language_judged import LARGE

PAGE = r""".TH ls 1
.SH BEZEICHNUNG
ls \- Verzeichnisinhalte auflisten, die im \fBaktuellen\fR Ordner liegen
.PP
Listet
.B DATEI
\(FoInformationen\(Fc \(en standardm\[u ..]\(:assig \(en auf.
.PP
This is a paragraph that the translators have left in English, with the words of the manual.
"""


def test_paragraphs_of_a_manual_page() -> None:
    read = list(language_manuals.manual("usr/share/man/de/man1/ls.1.gz", gzip.compress(PAGE.encode())))
    assert [label for label, _ in read] == ["de", "de"]
    assert read[0][1] == "ls - Verzeichnisinhalte auflisten, die im aktuellen Ordner liegen"
    assert read[1][1].startswith("Listet DATEI «Informationen» –")
    assert not list(language_manuals.manual("usr/share/man/man1/ls.1.gz", gzip.compress(PAGE.encode())))


def test_pages_of_help_guides_and_verses() -> None:
    page = b"<page><title>Vento</title>\n<p>O rio <em>nasce</em>\nnas colinas.</p><note/></page>"
    assert list(language_manuals.page("usr/share/help/pt/gedit/a.page", page)) == [
        ("pt", "Vento"),
        ("pt", "O rio nasce\nnas colinas."),
    ]
    assert {label for label, _ in language_manuals.page("usr/share/help/C/gedit/a.page", page)} == {"en"}
    assert list(
        language_manuals.guide("doc/guide/html/ch01.ca.html", b"<p class='x'>El riu <b>neix</b></p>")
    ) == [("ca", "El riu neix")]
    assert list(language_manuals.guide("doc/guide/fi/ch01.html", b"<p>Joki alkaa</p>")) == [
        ("fi", "Joki alkaa")
    ]
    assert not list(language_manuals.guide("doc/guide/html/ch01.html", b"<p>Joki alkaa</p>"))
    verses = json.dumps([{"verses": [{"text": "x", "translation": "Katakanlah"}]}]).encode()
    assert list(language_manuals.verses("package/dist/quran_id.json", verses)) == [("id", "Katakanlah")]


def test_forms_of_words_that_share_their_beginnings() -> None:
    rows = b"".join(
        bytes([shared, len(rest)]) + rest + tail
        for shared, rest, tail in (
            (0, b"haus", b"\x00\x00"), (4, b"es", b"\x02\x00"), (4, b"tier", b"\xff\x03abc"), (0, b"rot", b"\xfe"),
        )
    )  # fmt: skip
    packed = lzma.compress(b"SMFC1\x00\x04" + rows)
    assert language_manuals.lemmas("data/de.plzma", packed) == ("de", ["haus", "hauses", "haustier", "rot"])
    backwards = lzma.compress(b"SMFC1\x01\x04" + rows)
    assert language_manuals.lemmas("data/de.plzma", backwards) == (
        "de",
        ["suah", "sesuah", "reitsuah", "tor"],
    )
    assert language_manuals.lemmas("data/hbs.plzma", packed) is None


@given(
    st.binary(max_size=200),
    st.sampled_from(
        ["share/man/de/man1/a.1.gz", "share/help/de/a.page", "doc/de/a.html", "doc/a.de.html.gz"]
    ),
)
def test_any_bytes_are_read_without_an_error(data: bytes, path: str) -> None:
    for read in (language_manuals.manual, language_manuals.page, language_manuals.guide):
        assert all(isinstance(text, str) for _, text in read(path, data))
    assert all(isinstance(text, str) for _, text in language_manuals.manual(path, gzip.compress(data)))


def test_rarer_languages_have_lower_priors_and_no_language_has_none() -> None:
    own = language_profile.priors(0.1)
    found = {label: language_profile.prior(own, label) for label in ("de", "ms", "jam", "und")}
    assert found == {"de": 0, "ms": -0.4, "jam": -0.8, "und": 0}
    assert set(LARGE) <= set(language_profile.COMMON)
    assert not set(language_profile.COMMON) & set(language_profile.SEEN)


def test_the_weight_of_priors_is_the_largest_that_costs_next_to_nothing() -> None:
    labels = ["de", "jam"]
    logs = np.log(np.array([[0.4, 0.6]] * 4 + [[0.02, 0.98]] * 4))
    wanted = np.array([0] * 4 + [1] * 4)
    weight, rows = language_profile.fitted_weight(
        language_profile.Evidence(logs, wanted, np.full(8, 20)), labels
    )
    shares = dict(rows)
    assert (
        shares[0.0] == 0.5 and shares[weight] == 1 and all(shares[one] < 1 for one in shares if one > weight)
    )


def test_pieces_of_a_text_end_between_words() -> None:
    text = "ka rere te awa " * 40
    pieces = list(language_judged._pieces(text, 150))
    assert all(150 <= len(piece) < 160 for piece in pieces) and "".join(pieces) in text
    assert [len(piece) for piece in language_judged._pieces("河" * 130, 150)] == [50, 50, 30]
