"""A source that loses (nearly) everything ends the run with its accounts written and one line of what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.losses import LostSources
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.report import Report
from tests.conftest import Serial
from tests.pipeline.filter.helpers import PROSE

ENGLISH = [PROSE]
SPANISH = [
    "La biblioteca municipal abrió sus puertas hace casi un siglo, cuando el barrio era todavía un conjunto de huertas y"
    " talleres junto al río. Los vecinos lo recuerdan bien. Todos ayudaron a levantarla. Los vecinos reunieron dinero durante años para comprar los primeros libros, y una maestra"
    " jubilada ordenó las fichas en cajones de madera que aún se conservan. Hoy los niños hacen allí sus deberes, los"
    " mayores leen el periódico por la mañana. Cada jueves un grupo comenta una novela distinta.",
    "El tren de la costa sale temprano, antes de que amanezca, y tarda unas tres horas en llegar al último pueblo. Desde"
    " las ventanillas se ven primero las fábricas, luego los campos de naranjos y al final un mar tranquilo que cambia de"
    " color según la estación. El viaje no cansa a nadie. Casi nunca hay retrasos. Quien viaja por primera vez suele quedarse dormido en el mejor tramo; los pasajeros de"
    " siempre lo despiertan con cuidado para que no se pierda los acantilados.",
    "Para hacer un buen pan hacen falta harina, agua, sal y paciencia. La masa descansa toda la noche en un lugar fresco,"
    " y por la mañana se forma sin prisa, procurando no quitarle el aire que ha ganado. El fermento hace lo demás. Nadie debe tener prisa. El horno tiene que estar muy"
    " caliente cuando entra la hogaza; después de veinte minutos se baja la temperatura, y la corteza canta al enfriarse"
    " sobre una rejilla de metal.",
]


def job(folder: Path, sources: dict[str, Any], command: bool = False, **changes: Any) -> Run:
    config = {
        "name": "t",
        "sources": sources,
        "stages": ["ingest", "split", "tokenizer", "report"],
        **changes,
    }
    return Run(
        Recipe.model_validate(config), Folder(folder / "run"), Serial(), folders={"ingest": Folder(folder)} if command else None, replace=True
    )  # fmt: skip


def rows(path: Path, texts: list[str], column: str = "text") -> dict[str, Any]:
    path.write_text("".join(json.dumps({"id": str(n), column: text}) + "\n" for n, text in enumerate(texts)))
    return {"paths": [str(path)]}


def lost(run: Run) -> LostSources:
    with pytest.raises(LostSources) as caught:
        run.execute()
    return caught.value


def test_another_text_column_is_named(tmp_path: Path) -> None:
    run = job(tmp_path, {"web": rows(tmp_path / "a.jsonl", [f"page {n}" for n in range(150)], "content")})
    error = lost(run)
    assert str(error) == (
        "ingest kept 0 of 150 records of source 'web': no field 'text' in 150 of 150 (ingest.no_text); did you mean"
        " 'content'? sources.web.text_column: content (to allow such a loss: sources.web.min_kept: 0)"
    )
    # The accounts are closed: every record has its row, the report its alarm, and what trains has not begun.
    verify(run.folder)
    report = Report.model_validate_json((tmp_path / "run/report/report.json").read_bytes())
    assert [alarm.source for alarm in report.alarms] == ["web"]
    assert report.totals.quarantined == 150
    assert 'role="alert"' in (tmp_path / "run/report.html").read_text()
    assert not (tmp_path / "run/tokenizer").exists()
    # It ends alike a second time, with nothing made again.
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run/ingest").rglob("*.parquet")}
    assert str(lost(job(tmp_path, {"web": {"paths": [str(tmp_path / "a.jsonl")]}}))) == str(error)
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_the_report_of_such_a_run_can_be_written_again(tmp_path: Path) -> None:
    run = job(tmp_path, {"web": rows(tmp_path / "a.jsonl", ["x"] * 3, "content")})
    lost(run)
    page = (tmp_path / "run/report.html").read_bytes()
    (tmp_path / "run/report.html").unlink()
    run.report()
    assert (tmp_path / "run/report.html").read_bytes() == page


def test_a_partition_that_is_gone_is_named_and_not_left_out_of_the_report(tmp_path: Path) -> None:
    run = job(tmp_path, {"web": rows(tmp_path / "a.jsonl", ["x"] * 3, "content")})
    lost(run)
    (part,) = (tmp_path / "run/ingest/parts").iterdir()
    part.unlink()
    with pytest.raises(WorkError, match=f"{part}: missing; `corpusmill verify` names all that is damaged"):
        run.report()


def test_the_other_sources_are_counted(tmp_path: Path) -> None:
    sources = {
        "good": rows(tmp_path / "good.jsonl", ["fine text"] * 3),
        "few": rows(tmp_path / "few.jsonl", ["fine text"] + [""] * 199),
        "none": rows(tmp_path / "none.jsonl", ["x"], "body"),
    }
    error = lost(job(tmp_path, sources))
    assert [(loss.source, loss.kept, loss.records) for loss in error.losses] == [
        ("few", 1, 200),
        ("none", 0, 1),
    ]
    assert error.losses[0].rule == "ingest.empty_text" and error.losses[0].by_rule == 199


@pytest.mark.parametrize(("least", "kept"), [(0.0, 0), (0.005, 1), (0.5, 100)])
def test_a_recipe_can_allow_it(tmp_path: Path, least: float, kept: int) -> None:
    source = {**rows(tmp_path / "a.jsonl", ["fine text"] * kept + [""] * (200 - kept)), "min_kept": least}
    manifests = job(tmp_path, {"web": source}, stages=["ingest", "report"]).execute()
    assert manifests[0].counts.kept == kept
    report = json.loads((tmp_path / "run/report/report.json").read_text())
    assert report["alarms"] == []


def test_a_corpus_without_text_is_no_matter_of_the_sample(tmp_path: Path) -> None:
    source = {**rows(tmp_path / "a.jsonl", [""] * 3), "min_kept": 0}
    with pytest.raises(Exception, match="the train split holds no text") as caught:
        job(tmp_path, {"web": source}).execute()
    assert "sample_mb" not in str(caught.value)


FILTER: dict[str, Any] = {"stages": ["ingest", "filter"], "filter": {"toxicity": None, "quality": None}}


def test_text_in_a_language_that_the_rules_are_not_made_for(tmp_path: Path) -> None:
    source = rows(tmp_path / "a.jsonl", SPANISH)
    error = lost(job(tmp_path, {"web": source}, **FILTER))
    assert error.losses[0].rule == "gopher_quality.stop_words_min"
    assert "made for en; language es" in str(error)
    assert "filter.language.keep: [en, es]" in str(error)


def test_a_rule_for_english_is_not_judged_on_another_language_to_keep(tmp_path: Path) -> None:
    texts = [*SPANISH, *ENGLISH]
    source = rows(tmp_path / "a.jsonl", texts)
    config = {**FILTER, "filter": {**FILTER["filter"], "language": {"keep": ["en", "es"]}}}
    manifests = {m.stage: m for m in job(tmp_path, {"web": source}, **config).execute()}
    assert manifests["filter"].counts.kept == len(texts)
    # With English alone to keep, every rule is judged as before: the ledger names all that failed.
    config["filter"] = {**config["filter"], "language": {"keep": ["en"]}}
    manifests = {m.stage: m for m in job(tmp_path, {"web": source}, **config).execute()}
    assert manifests["filter"].counts.kept == len(ENGLISH)
    assert manifests["filter"].counters["rule/gopher_quality.stop_words_min/first"] == len(SPANISH)


def test_the_command_says_so_with_its_own_options(tmp_path: Path) -> None:
    from tests.e2e.cli import corpusmill

    rows(tmp_path / "a.jsonl", [f"page {n} of some text" for n in range(150)], "content")
    command = ("ingest", tmp_path / "a.jsonl", tmp_path / "out", "--workers", "0")
    done = corpusmill(*command, check=False)
    assert done.returncode == 1 and "150         0         0         150" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "error: ingest kept 0 of 150 records: no field 'text' in 150 of 150 (ingest.no_text); did you mean 'content'?"
        " --text-column content (to allow such a loss: --set sources.input.min_kept=0)"
    )
    as_json = corpusmill(*command, "--json", check=False)
    assert as_json.returncode == 1 and json.loads(as_json.stdout)["lost"][0]["records"] == 150
    assert corpusmill(*command, "--text-column", "content").returncode == 0


def test_documents_of_another_run_keep_the_names_of_its_sources(tmp_path: Path) -> None:
    """An empty partition among them is no lost source; when none is kept, all of them are."""
    source = rows(tmp_path / "a.jsonl", [f"fine text {n}" for n in range(9)])
    first = job(tmp_path, {"web": source}, stages=["ingest"])
    first.execute()
    documents = tmp_path / "run/ingest/documents"
    (part,) = documents.glob("*.parquet")
    pq.write_table(pq.read_table(part).slice(0, 0), documents / "empty.parquet")
    again = {"input": {"paths": [str(documents)]}}
    manifests = job(tmp_path / "again", again, stages=["ingest"]).execute()
    assert manifests[0].counts.kept == 9 and manifests[0].counts.quarantined == 1
    filtered = job(tmp_path / "third", again, **{**FILTER, "filter": {**FILTER["filter"], "language": None}})
    error = lost(filtered)
    assert (error.losses[0].source, error.losses[0].stage, error.losses[0].records) == ("input", "filter", 9)
    assert error.losses[0].rule == "gopher_quality.word_count_min"
