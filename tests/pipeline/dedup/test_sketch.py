"""URLs that name the same page are one key, whatever else is in them."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.sketch import normal_urls

PARTS = st.sampled_from(
    ["http:", "HTTPS:", "ftp:", "//", "/", "?", "#", ":", ":80", ":443", "A.org", "b", "É", "\n", " ", "@", "..", "\0"]
)  # fmt: skip

LETTERS = "aZ09./?#:@-+éÀ \n\t"


def plain(url: str) -> str:
    """The rule in plain Python."""
    url = re.sub(r"\A(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//", "", url.strip())
    url = url.split("#")[0]
    end = min((url.index(sign) for sign in "/?" if sign in url), default=len(url))
    host, rest = url[:end].lower(), url[end:]
    for port in (":80", ":443"):
        if host.endswith(port):
            host = host.removesuffix(port)
            break
    return host + rest.removesuffix("/")


@given(
    st.lists(
        st.none() | st.lists(PARTS, max_size=8).map("".join) | st.text(LETTERS, max_size=20), max_size=20
    )
)
def test_normal_urls_as_in_plain_python(urls: list[str | None]) -> None:
    assert normal_urls(pa.array(urls, pa.string())).to_pylist() == [
        url if url is None else plain(url) for url in urls
    ]


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://Example.org/page/", "example.org/page"),
        ("http://example.org:80/page#part", "example.org/page"),
        ("ftp://EXAMPLE.org/page", "example.org/page"),
        ("//example.org/page", "example.org/page"),
        ("https://example.org/Page", "example.org/Page"),
        ("https://example.org:8080/page", "example.org:8080/page"),
        ("https://example.org?q=A/", "example.org?q=A"),
        ("https://example.org/a\nb#c\nd", "example.org/a\nb"),
        ("#", ""),
    ],
)
def test_what_is_the_same_page(url: str, key: str) -> None:
    assert normal_urls(pa.array([url])).to_pylist() == [key]
