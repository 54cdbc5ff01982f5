"""Signals of a user's own: what they may do, and how their errors are reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter import plugins
from corpusmill.pipeline.filter.apply import Filtering
from corpusmill.pipeline.filter.signals.catalogue import every_spec, text_specs
from corpusmill.pipeline.filter.signals.registry import MEASURES
from tests.conftest import ROOT
from tests.pipeline.filter.helpers import PROSE, documents, stage, without_models

HEAD = "import numpy as np\nfrom corpusmill.pipeline.filter.signals.registry import signal\n"
QUESTIONS = (
    "import pyarrow.compute as pc\n"
    + HEAD
    + """
@signal("mine.questions", "question marks per word", "me", version="7")
def questions(view):
    return np.asarray(pc.count_substring(view.text, "?")) / np.maximum(view.words, 1)

signal("mine.first", "first letter", "me", "string", (None, None))(lambda view: pc.utf8_slice_codeunits(view.text, 0, 1))
signal("mine.long", "more than 100 words", "me", "bool", (None, None))(lambda view: view.words > 100)
signal("mine.late", "bytes", "me", "int", on_demand=True)(lambda view: np.diff(view.offsets))
"""
)


def plugin(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def signals_of(file: str, texts: list[str]) -> pa.Table:
    transform = stage(**without_models(plugins=[file])).transform(Folder("unused"), "0")
    assert isinstance(transform, Filtering)
    return transform.signals(documents(texts))


def test_a_plugins_signals_are_columns_like_all_others(tmp_path: Path) -> None:
    file = plugin(tmp_path, QUESTIONS)
    found = signals_of(file, ["Why? Who?", "", "é so"])
    assert found["mine.questions"].to_pylist() == [1.0, 0.0, 0.0]
    assert found.schema.field("mine.questions").type == pa.float32()
    assert found["mine.first"].to_pylist() == ["W", "", "é"]
    assert found["mine.long"].to_pylist() == [False, False, False]
    assert "mine.late" not in found.column_names and "gopher.word_count" in found.column_names
    loaded = plugins.load([file])
    assert [s.name for s in text_specs({"mine.late"}, loaded)][-1] == "mine.late"
    assert {s.version for s in every_spec(loaded) if s.name == "mine.questions"} == {"7"}


def test_a_rule_file_judges_a_plugins_signal(tmp_path: Path) -> None:
    rules = tmp_path / "mine.yaml"
    rules.write_text(
        "name: mine\norigin: me\nrules:\n  - {name: few_bytes, signal: mine.late, at_most: 20}\n",
        encoding="utf-8",
    )
    asked = without_models(plugins=[plugin(tmp_path, QUESTIONS)], rules=[str(rules)])
    transform = stage(**asked).transform(Folder("unused"), "0")
    assert isinstance(transform, Filtering)
    outcome = transform(documents(["short", PROSE]))
    assert outcome.decisions["rule"].to_pylist() == ["mine.few_bytes"]
    assert outcome.kept["text"].to_pylist() == ["short"]


def test_plugins_stay_apart_from_the_built_in_signals_and_from_each_other(tmp_path: Path) -> None:
    before = set(MEASURES)
    first = plugins.load([plugin(tmp_path, QUESTIONS)])
    second = plugins.load([plugin(tmp_path, QUESTIONS.replace("mine.", "yours."), "other.py")])
    assert set(MEASURES) == before and not first.measures.keys() & second.measures.keys()
    assert "mine.questions" not in {s.name for s in text_specs()}


def test_the_key_changes_with_the_bytes_of_a_plugin(tmp_path: Path) -> None:
    file = plugin(tmp_path, QUESTIONS)
    before = stage(plugins=[file]).key_params()
    plugin(tmp_path, QUESTIONS + "\n")
    after = stage(plugins=[file]).key_params()
    assert before["plugins"] != after["plugins"] and {**before, "plugins": 0} == {**after, "plugins": 0}
    assert stage().key_params()["plugins"] == []


@pytest.mark.parametrize(
    ("body", "dtype", "message"),
    [
        ("1 / 0", "float", "line 3: ZeroDivisionError: division by zero"),
        ("view.nothing", "float", "line 3: AttributeError: 'TextView' object has no attribute 'nothing'"),
        ("view.words[:1]", "float", "returned 1 values for 2 documents; one value per document is needed"),
        ("view.counts", "float", r"returned shape \(2, \d+\) for 2 documents"),
        ("None", "float", r"returned shape \(\) for 2 documents"),
        ("np.array([0.5, np.nan])", "float", "returned nan, which is not a finite number"),
        ("np.array([0.5, 1e300])", "float", "returned 1e[+]300, which is not a finite number"),
        ("np.array([0.5, -1.0])", "float", "returned values from -1.0 to 0.5; its range is 0.0 to None"),
        ("np.array(['a', 'b'])", "float", "returned values of type <U1, where its dtype is float"),
        ("np.array([0.5, 1.0])", "int", "returned values of type float64, where its dtype is int"),
        ("np.array([1, 2**63], np.uint64)", "int", r"returned 9223372036854775808, more than a column"),
        ("view.words", "bool", "returned values of type int64, where its dtype is bool"),
        ("[1, 2]", "string", "returned no strings: "),
        ("__import__('pyarrow').array([1, None])", "int", "returned null for 1 of 2 documents"),
    ],
)
def test_a_wrong_measure_is_reported_in_one_line(tmp_path: Path, body: str, dtype: str, message: str) -> None:
    bounds = "(None, None)" if dtype in ("string", "bool") else "(0.0, None)"
    text = f"{HEAD}signal('my.own', 'x', 'me', '{dtype}', {bounds})(lambda view: {body})\n"
    file = plugin(tmp_path, text)
    with pytest.raises(UserError, match=rf"^{re.escape(file)}: signal my\.own: {message}") as caught:
        signals_of(file, ["a b", "c"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "cannot be loaded: line 1: SyntaxError: invalid syntax"),
        ("import nowhere_to_be_found\n", "cannot be loaded: line 1: ModuleNotFoundError"),
        ("x = 1\nraise SystemExit(3)\n", "cannot be loaded: line 2: SystemExit: 3"),
        ("x = 1\n", "defines no signal; decorate a function with @signal"),
        (
            HEAD + "signal('Bad Name', 'x', 'me')(lambda v: v.words)\n",
            "cannot be loaded: line 3: ValidationError",
        ),
        (
            HEAD + "signal('gopher.word_count', 'x', 'me')(lambda v: v.words)\n",
            "gopher.word_count is defined twice",
        ),
        (
            HEAD + "signal('quality.score', 'x', 'me')(lambda v: v.words)\n",
            "signal quality.score: the family 'quality' is built in; name it my_quality.score",
        ),
    ],
)
def test_a_file_that_cannot_be_loaded_is_reported_before_any_work(
    tmp_path: Path, text: str, message: str
) -> None:
    file = plugin(tmp_path, text)
    with pytest.raises(UserError, match=rf"^{re.escape(file)}: .*{message}") as caught:
        stage(plugins=[file])
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    for file, message in (
        (str(tmp_path / "no.py"), "no such file"),
        ("https://a.b/c.py", "a plugin is a local file"),
    ):
        with pytest.raises(UserError, match=message):
            stage(plugins=[file])
    twice = [plugin(tmp_path, QUESTIONS), plugin(tmp_path, QUESTIONS, "again.py")]
    with pytest.raises(UserError, match=r"again\.py: signal mine\.questions is taken by .*mine\.py"):
        plugins.load(twice)


def test_the_example_of_the_docs_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/filtering.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(# my_signals\.py\n.*?)```", page, re.S)
    found = signals_of(plugin(tmp_path, example), ["Really? Yes! Now! Buy!", PROSE])
    assert found["mine.shouting"].to_pylist() == [0.75, 0.0]


def test_workers_tell_a_plugins_mistake_in_one_line(tmp_path: Path) -> None:
    file = plugin(tmp_path, HEAD + "signal('my.own', 'x', 'me')(lambda view: view.words[:0])\n")
    docs = tmp_path / "docs.jsonl"
    docs.write_text(json.dumps({"text": PROSE}) + "\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "corpusmill",
        "filter",
        str(docs),
        str(tmp_path / "out"),
        "--plugins",
        file,
    ]
    done = subprocess.run([*command, "--workers", "0", "-q"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{file}: signal my.own: returned 0 values for 1 documents" in done.stderr
