"""Planted items are found whatever was done to their case, punctuation and white space; common phrases are not."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.decontaminate.stage import Decontaminate
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.corpus import Here
from tests.pipeline.decontaminate.helpers import ANSWER, FILLER, QUESTION, SHORT, decontaminate, write_set

EDITS = {
    "as it is": QUESTION,
    "upper case": QUESTION.upper(),
    "no punctuation": QUESTION.replace(",", ""),
    "other punctuation": QUESTION.replace(" ", " - ").replace(",", ";"),
    "wrapped": QUESTION.replace(" ", "\n"),
    "over paragraphs": QUESTION.replace(" over ", "\n\nover "),
    "markdown": "> **" + QUESTION.replace(" each ", "** _each_ ") + "**",
    "in a word's middle of text": "x" + " " + QUESTION + "?x",
    "half of it": " ".join(QUESTION.split()[:20]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_question_is_found(tmp_path: Path, riddles: Path, edit: str) -> None:
    texts = [FILLER * 20, FILLER * 3 + EDITS[edit] + " " + FILLER * 3, FILLER]
    ran = decontaminate(tmp_path / "run", texts, riddles)
    assert ran.texts == [texts[0], texts[2]]
    (decision,) = ran.decisions
    assert (decision["outcome"], decision["rule"]) == ("removed", "decontaminate.question")
    assert decision["value"] >= decision["threshold"] == 0.5
    assert "riddles#long question" in decision["detail"] and "llama" not in decision["detail"]
    found = ran.set("riddles")
    assert (found["items"], found["unused"], found["contaminated"], found["documents"]) == (3, 1, 1, 1)
    assert found["sources"] == [{"source": "web", "touched": 1, "found": 1, "documents": 1}]
    assert [(row["id"], row["drop"]) for row in ran.touched] == [("long", True)]


def test_every_record_of_a_question_is_named(tmp_path: Path) -> None:
    """MultiRC asks one question once for each answer: what is found of it concerns all of these records."""
    rows = [{"question": QUESTION, "answer": str(n), "id": f"{n}"} for n in range(4)]
    rows += [
        {"question": "Why so short?", "answer": "No reason", "id": name} for name in ("tiny", "tiny too")
    ]
    ran = decontaminate(tmp_path / "run", [QUESTION], write_set(tmp_path / "evals", rows))
    assert [(row["id"], row["record"], row["drop"]) for row in ran.touched] == [
        (str(n), n + 1, True) for n in range(4)
    ]
    found = ran.set("riddles")
    assert (found["items"], found["unused"], found["contaminated"]) == (2, 1, 1)
    folder = tmp_path / "run/decontaminate/index"
    records = pq.read_table(folder / "records.parquet").to_pylist()
    assert [(row["item"], row["id"]) for row in records] == [
        *((0, str(n)) for n in range(4)), (1, "tiny"), (1, "tiny too"),
    ]  # fmt: skip
    reasons = [row["why"] for row in pq.read_table(folder / "items.parquet").to_pylist()]
    assert reasons == [None, "too short"]


def test_spans_are_the_matched_words(tmp_path: Path, riddles: Path) -> None:
    text = "Öl und Brot. " + QUESTION.upper() + "! Größe."
    ran = decontaminate(tmp_path / "run", [text], riddles, action="report")
    assert ran.texts == [text]
    (match,) = ran.matches
    (span,) = match["spans"]
    assert text[span["offset"] : span["offset"] + span["length"]] == QUESTION.upper()
    assert match["matched"] == match["grams"] == 15 and match["words"] == match["of"] == 27
    (decision,) = ran.decisions
    assert (decision["outcome"], decision["rule"]) == ("kept", None)
    assert decision["failed"] == [
        {"stage": "decontaminate", "rule": "decontaminate.question", "value": 1.0, "threshold": 0.5}
    ]


def test_a_part_below_the_threshold_is_touched_but_stays(tmp_path: Path, riddles: Path) -> None:
    text = FILLER + " ".join(QUESTION.split()[:13]) + " nothing more. " + FILLER
    ran = decontaminate(tmp_path / "run", [text], riddles)
    assert ran.texts == [text] and ran.decisions == []
    assert [(row["id"], row["drop"]) for row in ran.touched] == [("long", False)]
    assert ran.touched[0]["parts"]["question"] == {"share": round(13 / 27, 4), "documents": 0, "touched": 1}
    assert decontaminate(tmp_path / "any", [text], riddles, threshold=0).texts == []


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"{SHORT} {ANSWER}.", True),
        (f"Q: {SHORT.lower()}\n\nA: it is {ANSWER.upper()}!", True),
        (f"{SHORT} Nobody knows.", False),
        (f"{SHORT} " + "and " * 40 + ANSWER, False),
        (f"{ANSWER}: {SHORT}", False),
        (f"a{SHORT} {ANSWER}", False),  # word edges
        (f"{SHORT[:-1]}s? {ANSWER}", False),
        (f"Why so short? No reason. {QUESTION.split()[0]}", False),
    ],
)
def test_a_short_question_needs_all_of_it_and_its_answer(
    tmp_path: Path, riddles: Path, text: str, gone: bool
) -> None:
    ran = decontaminate(tmp_path / "run", [FILLER + text + " " + FILLER], riddles)
    assert (ran.texts == []) is gone


def test_records_of_one_question_are_one_item_with_all_their_answers(tmp_path: Path) -> None:
    rows = [{"question": SHORT, "answer": ANSWER}, {"question": SHORT.upper(), "answer": "no river at all"}]
    riddles = write_set(tmp_path / "evals", [*rows, {**rows[0], "passage": FILLER}])
    ran = decontaminate(tmp_path / "run", [f"{SHORT} {row['answer']}" for row in rows], riddles)
    assert ran.texts == [] and ran.set("riddles")["items"] == 2  # the passage makes another
    assert [decision["value"] for decision in ran.decisions] == [1.0, 1.0]


def test_where_no_choice_is_known_as_right_any_will_do(tmp_path: Path) -> None:
    riddles = write_set(tmp_path / "evals", [{"question": SHORT, "choices": ["the Bode", ANSWER]}])
    texts = [f"{SHORT} It is the Bode.", f"{SHORT} Nobody knows."]
    assert decontaminate(tmp_path / "run", texts, riddles).texts == texts[1:]


@pytest.mark.parametrize(
    ("question", "answer", "used"),
    [
        (
            "Who tends the lamp?",
            "Old Martha of Quay",
            True,
        ),  # four to search by: its answer must come right after it
        ("Who tends the lamp?", "Old Martha", False),
        ("Who now tends the lamp?", "Martha of Quay", True),
        ("Who now tends the lamp?", "Old Martha", False),
    ],
)
def test_a_short_question_needs_eight_words_with_its_answer(
    tmp_path: Path, question: str, answer: str, used: bool
) -> None:
    riddles = write_set(
        tmp_path / "evals", [{"question": QUESTION}, {"question": question, "answer": answer}]
    )
    ran = decontaminate(tmp_path / "run", [f"{FILLER}{question} {answer}. {FILLER}"], riddles)
    assert ran.set("riddles")["unused"] == (not used) and (ran.texts == []) is used


def test_a_short_text_without_answers_is_matched_whole(tmp_path: Path) -> None:
    sentence = "Who should Derek hug after shocking old Richard?"  # eight words
    riddles = write_set(tmp_path / "evals", [{"sentence_good": sentence}, {"sentence_good": sentence[-12:]}])
    ran = decontaminate(tmp_path / "run", [f"He asked: {sentence.upper()} Yes.", sentence[:-9]], riddles)
    assert len(ran.texts) == 1
    assert ran.decisions[0]["rule"] == "decontaminate.text" and ran.decisions[0]["value"] == 1.0
    assert ran.set("riddles")["unused"] == 1


def test_passages_are_reported_and_removed_only_if_asked(tmp_path: Path) -> None:
    passage = " ".join(f"word{i}" for i in range(60))
    riddles = write_set(tmp_path / "evals", [{"question": QUESTION, "passage": passage, "answer": "4"}])
    ran = decontaminate(tmp_path / "run", [FILLER + passage], riddles)
    assert (
        len(ran.texts) == 1 and ran.set("riddles")["passages"] == 1 and ran.set("riddles")["documents"] == 0
    )
    gone = decontaminate(tmp_path / "asked", [FILLER + passage], riddles, parts=["passage"])
    assert gone.texts == [] and gone.decisions[0]["rule"] == "decontaminate.passage"
    assert [row["drop"] for row in (*ran.touched, *gone.touched)] == [False, True]


def test_templates_are_boilerplate(tmp_path: Path) -> None:
    """What many items share is not looked for; nor are runs of numbers."""
    template = (
        "Read the following passage with care and then choose the one best answer to the question asked below"
    )
    rows = [
        {"question": f"{template}: {QUESTION.replace('Tuesday', f'day{i}').replace('quinces', f'q{i}')} {i}"}
        for i in range(12)
    ]
    rows.append({"question": " ".join(str(i) for i in range(20))})
    riddles = write_set(tmp_path / "evals", rows)
    texts = [FILLER + template + ". " + FILLER, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"]
    ran = decontaminate(tmp_path / "run", texts, riddles, threshold=0)
    assert ran.texts == texts
    counts = ran.set("riddles")
    assert counts["boilerplate"] > 0 and counts["no_letter"] == 8 and counts["unused"] == 1
    assert ran.counters["ngrams_boilerplate"] == counts["boilerplate"]
    every = decontaminate(tmp_path / "all", texts, riddles, threshold=0, max_items=100)
    assert len(every.texts) == 1


@pytest.mark.parametrize("items", [10, 11])
def test_an_ngram_of_up_to_ten_items_is_looked_for(tmp_path: Path, items: int) -> None:
    shared = " ".join(QUESTION.split()[:13])
    riddles = write_set(tmp_path / "evals", [{"question": f"{shared} for reason {i}"} for i in range(items)])
    ran = decontaminate(tmp_path / "run", [f"{FILLER}{shared}. {FILLER}"], riddles, threshold=0)
    assert (ran.texts == []) is (items == 10)


def test_ngrams_in_too_many_documents_are_dropped(tmp_path: Path, riddles: Path) -> None:
    first = " ".join(QUESTION.split()[:20])
    texts = [f"{first} no more. {FILLER}{i}" for i in range(5)]
    whole = decontaminate(tmp_path / "run", texts, riddles)
    assert whole.texts == []
    ran = decontaminate(tmp_path / "dropped", [*texts, QUESTION], riddles, max_documents=5, cuts=3)
    assert ran.table["dropped_by_documents"] == 8 and ran.texts == texts, (
        "seven of the last's 15 n-grams are left"
    )


def test_shares_of_words_and_of_ngrams(tmp_path: Path, riddles: Path) -> None:
    """Two changed words leave runs of 13: all but a few words in n-grams, and few of the n-grams."""
    words = QUESTION.split()
    text = " ".join([*words[:13], "many", *words[14:]])  # runs of 13 and 13 words
    ran = decontaminate(tmp_path / "words", [text], riddles)
    assert ran.decisions[0]["value"] == pytest.approx(26 / 27)
    assert "26 of 27 words" in ran.decisions[0]["detail"]
    ran = decontaminate(tmp_path / "ngrams", [text], riddles, measure="ngrams")
    assert ran.texts == [text] and ran.touched[0]["parts"]["question"]["share"] == round(2 / 15, 4)


def test_paragraph_measure(tmp_path: Path, riddles: Path) -> None:
    """marin's: a paragraph that is mostly an item, not a long one in which an item is quoted."""
    quoted = f"{FILLER * 5} {QUESTION} {FILLER * 5}"
    bare = f"{FILLER}\n\n{QUESTION} indeed\n\n{FILLER}"
    ran = decontaminate(tmp_path / "run", [quoted, bare], riddles, measure="paragraph")
    assert ran.texts == [quoted]
    assert ran.decisions[0]["value"] == pytest.approx(15 / 16)
    short = f"{FILLER * 5} {SHORT} {ANSWER} {FILLER * 5}"  # matched whole, so of no share
    assert decontaminate(tmp_path / "short", [short], riddles, measure="paragraph").texts == []


def test_other_spellings_of_a_word_are_one(tmp_path: Path) -> None:
    question = (
        "Où est la bibliothèque préférée de l'élève étranger que nous avons croisé hier près du théâtre"
    )
    riddles = write_set(tmp_path / "evals", [{"question": question}])
    ran = decontaminate(tmp_path / "run", [unicodedata.normalize("NFD", question.upper()), "où est"], riddles)
    assert ran.texts == ["où est"]


@pytest.mark.parametrize("action", ["remove", "cut", "report"])
def test_the_same_for_any_cut_and_order_of_tasks(tmp_path: Path, riddles: Path, action: str) -> None:
    texts = [
        FILLER * 3,
        f"{FILLER}\n\n{QUESTION}",
        f"{SHORT} {ANSWER}\n\n{FILLER * 4}",
        "",
        QUESTION.upper(),
        "\n\n",
    ]
    runs = [
        decontaminate(tmp_path / f"{cuts}{reverse}", texts, riddles, cuts, Here(reverse), action=action)
        for cuts, reverse in ((1, False), (3, False), (3, True), (6, True))
    ]
    for ran in runs[1:]:
        assert ran[:4] == runs[0][:4]
    assert runs[1].files == runs[2].files


def test_texts_that_come_in_chunks(tmp_path: Path, riddles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [FILLER, f"{FILLER * 2}\n\n{QUESTION}", FILLER, f"{QUESTION}\n\n{FILLER * 3}", QUESTION]
    whole = decontaminate(tmp_path / "whole", texts, riddles, action="cut")
    read = Partition.read

    def in_chunks(self: Partition, columns: Sequence[str] | None = None) -> pa.Table:
        table = read(self, columns)
        return pa.concat_tables([table.slice(row, 2) for row in range(0, len(table), 2)])

    monkeypatch.setattr(Partition, "read", in_chunks)
    assert decontaminate(tmp_path / "chunks", texts, riddles, action="cut") == whole


def test_hits_serve_other_thresholds(tmp_path: Path, riddles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once measured, thresholds and actions are judged without reading a document."""
    texts = [FILLER + QUESTION, FILLER + " ".join(QUESTION.split()[:13])]
    assert len(decontaminate(tmp_path / "run", texts, riddles).texts) == 1
    import corpusmill.pipeline.decontaminate.matches as scan

    monkeypatch.setattr(scan, "find_hits", None)
    assert decontaminate(tmp_path / "run", texts, riddles, threshold=0.1).texts == []
    assert len(decontaminate(tmp_path / "run", texts, riddles, action="report").texts) == 2
    with pytest.raises(TypeError):
        decontaminate(tmp_path / "run", [*texts, "more"], riddles)


@pytest.mark.parametrize("name", ["hits/00000.parquet", "index/grams.parquet"])
def test_what_is_gone_or_cut_short_is_made_again(tmp_path: Path, riddles: Path, name: str) -> None:
    first = decontaminate(tmp_path / "run", [FILLER, QUESTION], riddles)
    file = tmp_path / "run/decontaminate" / name
    whole = file.read_bytes()
    for damage in (file.unlink, lambda: file.write_bytes(whole[:-9])):
        damage()
        assert decontaminate(tmp_path / "run", [FILLER, QUESTION], riddles).files == first.files
        assert file.read_bytes() == whole


def test_no_text_of_an_item_is_published(tmp_path: Path, riddles: Path) -> None:
    decontaminate(tmp_path / "run", [FILLER + QUESTION], riddles)
    files = [file for file in (tmp_path / "run/decontaminate").rglob("*") if file.is_file()]
    assert {".json", ".jsonl", ".parquet"} <= {file.suffix for file in files}
    for file in files:
        if file.suffix == ".parquet":  # compressed: its bytes would not show a text
            table = pq.read_table(file)
            shown = f"{table.schema} {table.to_pylist()}"
        else:
            shown = file.read_bytes().decode(errors="replace")
        assert "llama" not in shown.lower(), file


def test_without_files_it_is_no_stage() -> None:
    plain = {"name": "t", "sources": {"a": {"paths": ["x"]}}}
    recipe = Recipe.model_validate(plain)
    assert "decontaminate" not in recipe.stages
    with pytest.raises(UserError, match=r"decontaminate\.against: missing"):
        Decontaminate(recipe)
    with pytest.raises(ValueError, match=r"decontaminate\.against: missing"):
        Recipe.model_validate({**plain, "stages": ["ingest", "decontaminate"]})
    asked = Recipe.model_validate({**plain, "decontaminate": {"against": ["evals"]}})
    assert asked.stages == [*recipe.stages[:3], "decontaminate", *recipe.stages[3:]]
    assert Recipe.model_validate_json(asked.model_dump_json()) == asked


def test_the_key_is_of_the_files_not_of_their_place(tmp_path: Path) -> None:
    def key(folder: str, question: str) -> dict[str, object]:
        file = write_set(tmp_path / folder, [{"question": question}])
        config = {"name": "t", "sources": {"a": {"paths": ["x"]}}, "decontaminate": {"against": [str(file)]}}
        return Decontaminate(Recipe.model_validate(config)).key_params()

    assert key("a", QUESTION) == key("b", QUESTION) != key("c", QUESTION + "!")


def test_a_set_that_is_mostly_not_searched_for_is_a_warning(tmp_path: Path) -> None:
    from corpusmill.pipeline.decontaminate.prepare import mostly_unused
    from corpusmill.schemas.decontamination import EvaluationIndex

    rows = [{"question": f"Why {i}?", "note": "a text that no role has"} for i in range(3)]
    riddles = write_set(tmp_path / "evals", [*rows, {"question": QUESTION}])
    decontaminate(tmp_path / "run", [FILLER], riddles)
    record = EvaluationIndex.model_validate_json(
        (tmp_path / "run/decontaminate/index/index.json").read_bytes()
    )
    (warning,) = mostly_unused(record)
    assert "3 of 4 items of riddles are not searched for" in warning
    assert warning.endswith("riddles.jsonl: question 'question', not used 'note'")
    assert (
        mostly_unused(
            record.model_copy(
                update={"sets": {"riddles": record.sets["riddles"].model_copy(update={"unused": 1})}}
            )
        )
        == []
    )


def test_items_of_few_words_are_searched_for_by_their_letters(tmp_path: Path) -> None:
    """Five words of twenty letters; with an answer, thirty; a question of eight words and 44 letters needs no answer."""
    rows: list[dict[str, Any]] = [
        {"sentence_good": "Alison wouldn't reveal Gerald's photograph."},
        {"sentence_good": "So he is in it."},
        {"question": "Which gallery exhibits seven ripe quinces throughout Wednesday evenings?", "answer": "none"},
        {"question": "Name it", "answer": "the Oberwalden quince market hall"},
    ]  # fmt: skip
    riddles = write_set(tmp_path / "evals", rows)
    texts = [
        f"{FILLER} alison WOULDN'T reveal Gerald's photograph {FILLER}",
        f"{FILLER} So he is in it. {FILLER}",
        f"{FILLER} {rows[2]['question']} {FILLER}",
        f"{FILLER} Name it: the Oberwalden quince market hall. {FILLER}",
        f"{FILLER} Call it the Oberwalden quince market hall. {FILLER}",
    ]
    ran = decontaminate(tmp_path / "run", texts, riddles)
    assert ran.texts == [texts[1], texts[4]]
