from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.lists.url_lists import UrlRules
from corpusmill.schemas.filter import FilterParams, UrlLists
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage, without_models


def lists(folder: Path, **given: str) -> dict[str, list[str]]:
    """List -> a file with its entries."""
    for name, text in given.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return {name: [str(folder / f"{name}.txt")] for name in given}


def measured(folder: Path, column: list[str | None], **given: str) -> dict[str, list[Any]]:
    """Signal, without its family -> value for each URL."""
    rules = UrlRules(UrlLists.model_validate(lists(folder, **given)))
    columns = rules.measure(pa.array(column, pa.string()))
    assert list(columns) == [spec.name for spec in rules.specs]
    return {name.removeprefix("url."): column.to_pylist() for name, column in columns.items()}


@pytest.mark.parametrize(
    ("url", "blocked"),
    [
        ("http://example.com/", 1),
        ("https://WWW.Example.COM:8080/a?b#c", 1),
        ("//a.b.example.com", 1),
        ("example.com", 1),
        ("http://user:pass@example.com./x", 1),
        ("http://notexample.com/", 0),
        ("http://example.com.evil.org/", 0),
        ("http://other.org/example.com", 0),
        ("http://other.org/?u=http://example.com/", 0),
        ("http://example.com@other.org/", 0),
        ("http://müller.de/", 1),
        ("http://MÜLLER.de", 1),
        ("http://xn--mller-kva.de/x", 1),
        ("http://www.xn--bcher-kva.example", 1),
        ("http://bücher.example", 1),
        ("http://192.0.2.7/x", 1),
        ("http://[2001:db8::1]:80/", 1),
        ("http://com/", 0),
        ("http:///", 0),
        ("not a url", 0),
    ],
)
def test_domains_and_all_below(url: str, blocked: int, tmp_path: Path) -> None:
    entries = "Example.com\nmüller.de\n*.xn--bcher-kva.example\n192.0.2.7\nhttp://[2001:DB8::1]/\n"
    assert measured(tmp_path, [url], domains=entries)["blocked_domain"] == [blocked]


def test_subdomains_exactly(tmp_path: Path) -> None:
    urls: list[str | None] = ["http://A.blog.org/", "http://b.a.blog.org", "http://blog.org"]
    assert measured(tmp_path, urls, subdomains="a.Blog.org\n")["blocked_subdomain"] == [1, 0, 0]


def test_whole_urls(tmp_path: Path) -> None:
    urls: list[str | None] = [
        "http://a.org/B", "https://A.ORG/b/#part", "http://a.org/b/c", "http://a.org/b?x", "http://a.org",
    ]  # fmt: skip
    found = measured(tmp_path, urls, urls="https://a.org/b/\nhttp://a.org/b?X\n")
    assert found["blocked_url"] == [1, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "url",
    [
        "https://a.org/b?q", "a.org/b?q", "http://user:word@a.org/b?q", "http://a.org:8080/b?q", "http://a.org./b?q",
        "http://a.org:/b?q#part", "http://u@A.org.:1/b?q/",
    ],
)  # fmt: skip
def test_scheme_user_port_fragment_and_a_slash_at_the_end_make_no_difference(
    url: str, tmp_path: Path
) -> None:
    """Neither in the list nor in a document's URL."""
    for entry, seen in (("http://a.org/b?q", url), (url, "http://a.org/b?q")):
        assert measured(tmp_path, [seen, "http://a.org/b", None], urls=entry)["blocked_url"] == [1, 0, None]
    for entry, seen in (("http://a.org", "https://a.org:443/"), ("a.org:80", "http://a.org./#x")):
        assert measured(tmp_path, [seen, "http://b.a.org/"], urls=entry)["blocked_url"] == [1, 0]


def test_words(tmp_path: Path) -> None:
    urls: list[str | None] = [
        "http://a.org/Casino/POKER-poker", "http://casino-poker.org", "http://a.org/casinos_poker", "http://a.org/x",
        "http://a.org/%D0%9F%D0%9B%D0%9E%D0%A5%D0%9E/плохо", "http://a.org/%FFcasino%zz",
    ]  # fmt: skip
    found = measured(
        tmp_path, urls, hard_words="CASINOS\nплохо\nx\n", soft_words="casino\npoker\n", substrings="sino-po\n"
    )
    assert found["soft_words"] == [2, 2, 1, 0, 0, 1]
    assert found["hard_words"] == [0, 0, 1, 1, 2, 0]
    assert found["substrings"] == [1, 1, 0, 0, 0, 0]


def test_a_list_that_is_not_given_and_a_document_without_url_are_not_measured(tmp_path: Path) -> None:
    found = measured(tmp_path, ["http://a.org", None, ""], domains="a.org\n")
    assert found["blocked_domain"] == [1, None, None]
    assert all(values == [None] * 3 for name, values in found.items() if name != "blocked_domain")


def test_the_set_is_judged_first_and_shows_which_list(tmp_path: Path) -> None:
    given = without_models(
        urls=lists(tmp_path, domains="bad.org\n", soft_words="a\nb\n"), rules=["gopher_quality"]
    )
    docs = documents([PROSE, PROSE, "short", PROSE])
    urls = pa.array(["http://x.bad.org/a/b", "http://good.org/a", "http://bad.org", None])
    docs = docs.set_column(docs.schema.get_field_index("url"), docs.schema.field("url"), urls)
    outcome = apply(docs, **given)
    assert len(outcome.kept) == 2
    rows = outcome.decisions.to_pylist()
    assert [row["rule"] for row in rows] == ["url.domain", "url.domain"]
    assert [entry["rule"] for entry in rows[0]["failed"]] == ["url.domain", "url.soft_words_max"]
    assert rows[0]["failed"][1]["value"] == 2 and rows[0]["failed"][1]["threshold"] == 1
    assert outcome.counters["rule/url.domain/first"] == 2
    assert len(apply(docs, **{**given, "skip_sources": {"web": ["url"]}}).kept) == 3
    last = apply(docs, **{**given, "rules": ["gopher_quality", "url"]}).decisions.to_pylist()
    assert [row["rule"] for row in last] == ["url.domain", "gopher_quality.word_count_min"]


def test_the_lists_are_in_the_key(tmp_path: Path) -> None:
    given: dict[str, Any] = {"urls": lists(tmp_path, domains="bad.org\n")}
    before = stage(**given).key_params()["lists"]
    lists(tmp_path, domains="worse.org\n")
    assert stage(**given).key_params()["lists"] != before


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="filter.urls.domains: none.txt: no such file"):
        UrlRules(UrlLists(domains=["none.txt"]))
    with pytest.raises(ValueError, match="give files for at least one of domains"):
        FilterParams.model_validate({"urls": {}})


URL = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.lists(
    st.sampled_from(["http://", "a", "B", ".", "/", "?", "#", "@", ":", "[", "]", "%", "%41", "%C3%A9", "%ff", "é", "中", "_"]),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(urls=st.lists(st.none() | URL, max_size=5))
def test_any_url_and_any_cut_of_the_batch(
    tmp_path_factory: pytest.TempPathFactory, urls: list[str | None]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    entries = "a\nb.a\né\n中\nab\n"
    names = ("domains", "subdomains", "urls", "hard_words", "soft_words", "substrings")
    rules = UrlRules(UrlLists.model_validate(lists(folder, **dict.fromkeys(names, entries))))
    whole = {name: column.to_pylist() for name, column in rules.measure(pa.array(urls, pa.string())).items()}
    for place, url in enumerate(urls):
        alone = rules.measure(pa.array(["http://other", url], pa.string()).slice(1))
        assert {name: column.to_pylist() for name, column in alone.items()} == {
            name: values[place : place + 1] for name, values in whole.items()
        }
        assert all((values[place] is None) == (not url) for values in whole.values())
        if url:
            words = {w for w in whole if w.endswith("words")}
            assert all(whole[name][place] >= 0 for name in words)
            assert whole["url.blocked_domain"][place] >= whole["url.blocked_subdomain"][place]
