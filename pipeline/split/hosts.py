"""The host of a URL, a batch at a time: what `by: domain` never parts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# Scheme, a user's name and the port are no part of the host, as in RFC 3986; a backslash ends it, as in browsers.
_URL = (
    r"^(?P<scheme>[A-Za-z0-9+.\-]*://|//)?(?:[^/?#\\]*@)?(?P<host>\[[^\]/?#\\]*\]?|[^:/?#\\]*)"  # [...]: IPv6
)


def hosts(url: pa.Array | pa.ChunkedArray) -> pa.Array:
    """string[n], without nulls: the host of each URL in small letters, without dots at its end and without a leading
    `www.`; "" where there is none.

    Where no scheme stands before it, only a name with a dot is taken for a host: `notes/a.txt` has none. No list of
    public suffixes is used, so `a.example.org` and `b.example.org` are two hosts, and international names are one
    only in the same spelling (`xn--` or letters).
    """
    if isinstance(url, pa.ChunkedArray):
        url = pa.concat_arrays(url.chunks) if url.num_chunks else pa.array([], url.type)
    url = pc.fill_null(url.cast(pa.string()), "")
    found = pc.extract_regex(pc.utf8_trim_whitespace(url), _URL)
    scheme, host = pc.struct_field(found, "scheme"), pc.struct_field(found, "host")
    host = pc.utf8_rtrim(pc.utf8_lower(host), ".")
    named = pc.or_(pc.not_equal(scheme, ""), pc.match_substring(host, "."))
    spaced = pc.match_substring_regex(host, r"\s")
    host = pc.if_else(pc.and_not(named, spaced), host, "")
    return pc.replace_substring_regex(host, r"^www\.(.*[^.].*\..*)$", r"\1")
