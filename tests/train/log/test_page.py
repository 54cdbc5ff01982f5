"""The page: its contents, that it is self-contained, and that names and texts of a run are escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.train.log.dashboard import render, script_json
from corpusmill.train.log.plots import History
from corpusmill.train.run_folder import PLAN
from tests.train.log.made import JOURNAL, config_of, make_run


class Reader(HTMLParser):
    """Elements, attributes, texts and scripts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self._inside == "script" else self.texts).append(data)

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def page_of(run: Folder, live: float = 0, **made: Any) -> str:
    config = make_run(run, **made)
    return render(run, config, History().read(run), live)


def test_the_page_tells_the_run(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    found = Reader(page_of(run, rows=100))
    assert "Step 1,600 of 2,000; 104,857,600 of 131,072,000 tokens." in found.text
    assert "loss 7.913 (limit 4.021)" in found.text
    assert 'skipped: {"step": 841, "batches": 60}' in found.text and f"{39:032x}" in found.text
    plan = json.loads((run / PLAN).read())
    assert hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest() in found.text
    assert '"warmup_steps": 100' in found.text and "dense bf16" in found.text
    for name in ("wiki", "books", "code"):
        assert name in found.text
    assert "50.0%" in found.text  # share of a source at first
    assert [event["step"] for event in found.data["events"]] == [410, 900]
    assert found.data["events"][1]["words"] == ("step 900: rollback to step 840, loss 7.913 (limit 4.021)")
    assert found.data["tokens"]["y"][-1] == 1600 * 65536


def test_it_needs_nothing_and_runs_its_own_script_alone(tmp_path: Path) -> None:
    page = page_of(Folder(tmp_path), rows=30)
    found = Reader(page)
    for _tag, name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action", "data", "xlink:href")
        assert name != "href" or value == "data:,"
    assert len(found.scripts) == 2 and "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""
    )
    digest = base64.b64encode(hashlib.sha256(found.scripts[1].encode()).digest()).decode()
    policy = next(
        value for _, name, value in found.attributes if name == "content" and "default-src" in value
    )
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_equal_runs_give_equal_bytes_unless_live(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    config = make_run(run, rows=30)
    assert render(run, config, History().read(run)) == render(run, config, History().read(run))
    assert Reader(render(run, config, History().read(run), 5)).data["live"] == 5


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    found = Reader(render(run, config_of(run), History()))
    assert "No row of metrics has been written yet." in found.text and "not made yet" in found.text
    assert "Nothing was skipped, rolled back or stopped." in found.text


def test_a_run_that_is_done_says_so(tmp_path: Path) -> None:
    text = Reader(page_of(Folder(tmp_path), rows=30, done=True)).text
    assert "Done: 2,000 steps, 131,072,000 tokens." in text and "123,550,464" in text


HOSTILE = st.one_of(
    st.text(min_size=1, max_size=30),
    st.sampled_from(
        ["</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(2)>", "{{ 7 * 7 }}", "]]>",
         "\u2028", "'\"><b>", "&lt;b&gt;", "</style><style>*{display:none}", "</title>", "__proto__", "a/b"]
    ),
)  # fmt: skip
NAMED = HOSTILE.filter(lambda name: all(c.isprintable() or c == "\u2028" for c in name))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=NAMED, why=NAMED, other=NAMED)
def test_names_and_texts_are_text(tmp_path: Path, source: str, why: str, other: str) -> None:
    """A page of hostile words has the elements and scripts of a page of plain ones, and shows the words."""
    run, pages = Folder(tmp_path), []
    for name, reason, key in (("plain", "plain", "plain"), (source, why, other)):
        journal = [{**JOURNAL[1], "why": reason, "documents": [reason], f"key {key}": reason * 50}]
        config = make_run(run, rows=12, sources=(name, "wiki"), journal=journal)
        pages.append(Reader(render(run, config.model_copy(update={"name": name}), History().read(run))))
    plain, hostile = pages
    assert hostile.tags == plain.tags and len(hostile.scripts) == 2 and hostile.scripts[1] == plain.scripts[1]
    assert source in hostile.texts and " ".join(why.split()) in [
        " ".join(text.split()) for text in hostile.texts
    ]
    drawn = [s["name"] for group in hostile.data["groups"] for p in group["plots"] for s in p["series"]]
    assert source in drawn


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_json_in_a_script_is_json_and_ends_no_script(value: Any) -> None:
    text = str(script_json(value))
    assert json.loads(text) == value and not re.search("[<>&\u2028\u2029]", text)
