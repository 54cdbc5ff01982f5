"""Encodings that nobody declared, and text of which some bytes are lost: read as it was meant, with a row in the ledger."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import json
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.decoding import Undecodable, decode
from corpusmill.pipeline.ingest.encodings import detect, unmarked_utf
from tests.pipeline.ingest.helpers import ingest

SENTENCES = Path(__file__).resolve().parents[4] / "shared/data/langid/lingua_testdata/lingua_test.jsonl.gz"
TEXTS = {
    "ru": "Съешь же ещё этих мягких французских булок да выпей чаю, пока он не остыл.",
    "el": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί, όπως κάθε πρωί.",
    "pl": "Zażółć gęślą jaźń, powiedział ktoś, kto chciał sprawdzić wszystkie polskie litery.",
    "ko": "안녕하세요. 이 글은 문자 인코딩을 알아내기 위한 짧은 한국어 문장입니다.",
    "ja": "これは日本語の文章です。文字コードを正しく判定できるかを試します。",
    "zh": "这是一段中文文本，用来测试我们能不能正确地识别它的编码。",
    "hi": "यह हिंदी का एक छोटा वाक्य है, जिससे कूटलेखन की पहचान की जाँच होती है।",
    "ta": "இது தமிழில் எழுதப்பட்ட ஒரு சிறிய வாக்கியம், இதன் குறியாக்கம் சோதிக்கப்படுகிறது.",
    "en": "A short sentence in plain English, with nothing unusual in it at all.",
    "th": "นี่คือประโยคภาษาไทยสั้นๆ สำหรับทดสอบการตรวจหารหัสอักขระ",
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        *[("ru", name) for name in ("cp1251", "koi8-r", "iso8859-5", "cp866", "mac-cyrillic")],
        *[("el", name) for name in ("cp1253", "iso8859-7")],
        *[("pl", name) for name in ("cp1250", "iso8859-2")],
        ("ko", "euc-kr"), ("ko", "cp949"), ("ja", "shift_jis"), ("ja", "euc-jp"), ("ja", "iso2022-jp"),
        ("zh", "gb18030"), ("zh", "gbk"), ("th", "cp874"),
    ],
)  # fmt: skip
def test_what_nobody_declared(language: str, encoding: str) -> None:
    text = TEXTS[language]
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert decoded.note == f"read as {decoded.repaired}"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("language", TEXTS)
def test_utf16_without_a_mark(language: str, encoding: str) -> None:
    text = TEXTS[language]
    assert decode(text.encode(encoding)) == (text, encoding, f"read as {encoding}")
    assert decode(text.encode(encoding) + b"\n").text == text  # a line end that someone appended


def test_one_sign_of_a_long_text_decides_between_pages_that_are_nearly_the_same() -> None:
    """A capital alpha with tonos is another byte in Windows-1253 than in ISO 8859-7, where it would be a pilcrow within a word."""
    text = f"{TEXTS['el']} " * 20 + "Άνοιξη και καλοκαίρι."
    for encoding in ("cp1253", "iso8859-7"):
        assert decode(text.encode(encoding)).text == text


def test_an_accented_capital_ends_no_greek_word() -> None:
    """A quotation mark of ISO 8859-7 is one in Windows-1253, where everything else may be the same."""
    text = f"{TEXTS['el']} " * 20 + "Αγωνίζεται στη Β’ Εθνική."
    assert decode(text.encode("iso8859-7")).text == text


def test_a_stray_control_character_does_not_hide_the_encoding() -> None:
    assert decode("Login für Leser\x7f und andere".encode("cp1252")).text == "Login für Leser\x7f und andere"


@given(st.binary(max_size=300))
def test_whatever_comes_is_decoded_or_refused(data: bytes) -> None:
    try:
        decoded = decode(data)
    except Undecodable as error:
        assert 0 <= error.position <= len(data) and error.reason
    else:
        decoded.text.encode()  # no lone surrogates
        replaced = decoded.text.count("\ufffd")
        if decoded.repaired == "replaced":
            assert 1 <= replaced <= max(1, len(decoded.text) / 100)
            assert decoded.note is not None and "replaced by U+FFFD, the first at byte" in decoded.note


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_utf8_is_never_taken_for_another_encoding(text: str) -> None:
    marked = codecs.BOM_UTF8 + text.encode()
    with contextlib.suppress(Undecodable):  # mostly control characters
        assert decode(marked) == (text, None, None)


def test_utf8_behind_the_mark_of_utf16() -> None:
    text = "Die Größe steht hinter einer falschen Marke."
    for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        assert decode(mark + text.encode()) == (text, "utf-8", "read as utf-8")
        encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
        for text in TEXTS.values():
            assert decode(mark + text.encode(encoding)) == (text, None, None)


def test_a_lost_byte_costs_a_character(tmp_path: Path) -> None:
    """A dash whose last byte is lost, in 10 kB of text that is ASCII otherwise: no other encoding is tried for it."""
    before = "Plain English text, as there is much of it. " * 230
    data = (before + "A dash \N{EM DASH} here.").encode()
    broken = data.replace("\N{EM DASH}".encode(), b"\xe2\x80")
    (tmp_path / "a.txt").write_bytes(broken)
    result = ingest(tmp_path / "a.txt")
    assert result.texts == [before + "A dash \ufffd here."]
    assert result.decisions == [] and result.counters["encoding_repaired/replaced"] == 1
    (row,) = result.repaired
    place = len(before) + len("A dash ")
    assert row["edits"] == [
        {"stage": "ingest", "kind": "undecodable", "offset": place, "length": 0, "written": 1}
    ]
    assert (
        row["detail"] == f"1 place of bytes that are no utf-8 replaced by U+FFFD, the first at byte {place}"
    )
    assert (row["outcome"], row["rule"], row["locator"]) == ("kept", None, "a.txt#0")


def test_the_share_that_may_be_lost(tmp_path: Path) -> None:
    text = "Größe und Länge, übermäßig schön. " * 50
    broken = text.encode().replace(b"\xc3\xb6", b"\xb6")  # two in each sentence of 34 characters
    (tmp_path / "a.txt").write_bytes(broken)
    refused = ingest(tmp_path / "a.txt")
    assert refused.rules == ["ingest.undecodable"] and refused.repaired == []
    assert "ingest.max_replaced" in refused.decisions[0]["detail"]
    kept = ingest(tmp_path / "a.txt", params={"max_replaced": 0.1})
    assert kept.texts == [text.replace("ö", "\ufffd").strip()] or kept.texts == [text.replace("ö", "\ufffd")]
    assert len(kept.repaired[0]["edits"]) == text.count("ö")
    none = ingest(tmp_path / "a.txt", params={"max_replaced": 0.0})
    assert none.rules == ["ingest.undecodable"]


def test_each_reader_tells_the_ledger(tmp_path: Path) -> None:
    """A line of JSON, a value of CSV, of Parquet and a page, each in an encoding of its own, among others that are fine."""
    greek, polish = TEXTS["el"], TEXTS["pl"]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in (greek, polish, "plain")]
    (tmp_path / "a.jsonl").write_bytes(
        b"\n".join(line.encode(name) for line, name in zip(lines, ("cp1253", "utf-8", "ascii"), strict=True))
    )
    (tmp_path / "b.csv").write_bytes(b"text\n" + polish.replace(",", "").encode("cp1250") + b"\nplain text\n")
    values = pa.array([polish.encode(), greek.encode("iso8859-7"), None, greek.encode()], pa.binary())
    pq.write_table(pa.table({"text": values}), tmp_path / "c.parquet")
    (tmp_path / "d.html").write_bytes(f"<p>{greek}</p>".encode("cp1253"))
    (tmp_path / "e.txt").write_text("The cafÃ© in ZÃ¼rich", encoding="utf-8")
    result = ingest(tmp_path)
    assert len(result.texts) == 3 + 2 + 3 + 1 + 1
    assert {row["locator"]: row["detail"] for row in result.repaired} == {
        "a.jsonl#0": "read as cp1253",
        "b.csv#0": "read as cp1250",
        "c.parquet#1": "read as cp1253",
        "d.html#0": "read as cp1253",
        "e.txt#0": "mojibake repaired",
    }
    assert result.rules == ["ingest.no_text"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-8-behind-utf-16"])
def test_lines_in_utf16(tmp_path: Path, encoding: str) -> None:
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS.values())
    data = b"\xff\xfe" + content.encode() if "behind" in encoding else content.encode(encoding)
    (tmp_path / "a.jsonl").write_bytes(data)
    assert ingest(tmp_path / "a.jsonl").texts == list(TEXTS.values())
    (tmp_path / "a.csv").write_bytes(
        b"\xff\xfetext\nplain \xc3\xa4\n" if "behind" in encoding else "text\nplain ä\n".encode(encoding)
    )
    assert ingest(tmp_path / "a.csv").texts == ["plain ä"]


@pytest.mark.skipif(not SENTENCES.exists(), reason="the shared test data is not there")
def test_real_sentences_of_many_languages() -> None:
    """Below the figures of the bench `encodings`, which this is a part of."""
    by_language: dict[str, list[str]] = defaultdict(list)
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as file:
        for line in file:
            if (row := json.loads(line))["kind"] == "sentences":
                by_language[row["lang"]].append(row["text"])
    assert len(by_language) >= 60
    wrong, tried = [], 0
    for language, sentences in by_language.items():
        text = " ".join(sentences[:5])
        for encoding in ("utf-16-le", "utf-16-be"):
            tried += 1
            if unmarked_utf(text.encode(encoding)) != encoding:
                wrong.append((language, encoding))
    assert len(wrong) <= 0.01 * tried, wrong
    legacy = {
        "cp1251": "be bg mk ru sr uk", "koi8-r": "ru", "cp1250": "bs cs hr hu pl sk sl", "cp1253": "el", "cp1254": "tr",
        "cp1255": "he", "cp1256": "ar fa ur", "cp1257": "et lt lv", "cp874": "th", "cp932": "ja", "euc-jp": "ja",
        "cp949": "ko", "gb18030": "zh", "big5": "zh", "cp1252": "de fr es pt it da nb sv fi nl is ca",
    }  # fmt: skip
    wrong, tried = [], 0
    for encoding, languages in legacy.items():
        for language in languages.split():
            fit = [text for text in by_language[language] if _fits(text, encoding)]
            for start in range(0, min(len(fit), 30), 5):
                text = " ".join(fit[start : start + 5])
                data = text.encode(encoding)
                if data.isascii():
                    continue
                tried += 1
                found = detect(data)
                if found is None or data.decode(found) != text:
                    wrong.append((language, encoding))
    assert tried > 150 and len(wrong) <= 0.03 * tried, wrong


def _fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeError:
        return False
    return True
