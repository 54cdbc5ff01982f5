"""Hosts of URLs: as RFC 3986 has them, equal to those of the filter's block lists, whatever text stands there."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.lists.url_kernels import parts
from corpusmill.pipeline.split.measure import hosts


def host(url: str | None) -> str:
    return str(hosts(pa.array([url], pa.string()))[0].as_py())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://www.Example.com:80/x", "example.com"),
        ("https://user:word@a.b.co.uk?x", "a.b.co.uk"),
        ("//host/x", "host"),
        ("example.org/page", "example.org"),
        ("notes/a.txt", ""),
        ("index", ""),
        ("http://www.com/", "www.com"),
        ("http://[::1]:80/x", "[::1]"),
        ("HTTP://EXAMPLE.COM./", "example.com"),
        ("file:///a/b.txt", ""),
        ("urn:isbn:1", ""),
        ("http://ÄÖ.de\\x", "äö.de"),
        ("http://a b/", ""),
        ("  http://x.y/ \n", "x.y"),
        ("", ""),
        (None, ""),
    ],
)
def test_known_urls(url: str | None, expected: str) -> None:
    assert host(url) == expected


URLS = st.text() | st.from_regex(
    r"https?://(www\.)?[A-Za-z0-9.\-]{0,12}(:[0-9]+)?[/?#@\\]?[ -~]{0,8}", fullmatch=True
)


@given(st.lists(st.none() | URLS, max_size=20))
def test_any_text_has_a_host_or_none(urls: list[str | None]) -> None:
    found = hosts(pa.array(urls, pa.string()))
    assert len(found) == len(urls) and found.null_count == 0
    assert found.to_pylist() == [host(url) for url in urls]  # a batch is its rows
    sliced = (
        pa.chunked_array([pa.array(urls, pa.string()).slice(1)])
        if urls
        else pa.chunked_array([], pa.string())
    )
    assert hosts(sliced).to_pylist() == found.to_pylist()[1:]
    for one in found.to_pylist():
        assert not re.search(r"[/?#\\\s]", one) and not one.endswith(".")


@given(
    st.from_regex(
        r"[a-z]{1,5}://([a-z@]{0,4}@)?[a-z0-9.\-]{1,12}(:[0-9]{1,3})?([/?#][a-z/?#@:]{0,8})?", fullmatch=True
    )
)
def test_the_host_of_the_block_lists_is_the_same(url: str) -> None:
    data = np.frombuffer(bytearray(url.encode()), np.uint8)  # which the kernel writes to
    start, stop, _ = parts(data, len(data))
    theirs = url[start:stop]
    assert host(url) == (re.sub(r"^www\.(?=.*[^.].*\.)", "", theirs) if "." in theirs else theirs)
