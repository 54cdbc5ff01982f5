"""The data card: YAML front matter as the Hugging Face Hub reads it, the headings of its card template, and
the seven sections of Datasheets for Datasets (Gebru et al. 2018), filled from the run's figures.

What figures cannot know (purpose, contact, upkeep) is not left blank: the card names who must state it.
"""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from corpusmill.common import escape
from corpusmill.common.format import number, share, size

Facts = dict[str, Any]
LANGUAGE_SHARE = 0.01  # of the kept documents: a rarer language is in the table, not in the front matter

# Licences that the Hub knows by name, out of its list; others are `other`, and named in the card's text.
HUB_LICENSES = frozenset((
    "apache-2.0", "mit", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0",
    "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0",
    "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
    "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "gpl", "gpl-2.0", "gpl-3.0",
    "agpl-3.0", "lgpl", "lgpl-2.1", "lgpl-3.0", "bsd", "bsd-2-clause", "bsd-3-clause", "afl-3.0",
    "artistic-2.0", "bsl-1.0", "epl-1.0", "epl-2.0", "eupl-1.1", "isc", "mpl-2.0", "ms-pl", "ncsa", "odbl",
    "odc-by", "osl-3.0", "pddl", "postgresql", "unlicense", "wtfpl", "zlib", "gfdl", "etalab-2.0",
))  # fmt: skip
SIZES = (
    (1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"), (1e7, "1M<n<10M"),
    (1e8, "10M<n<100M"), (1e9, "100M<n<1B"), (1e10, "1B<n<10B"), (1e11, "10B<n<100B"), (1e12, "100B<n<1T"),
)  # fmt: skip


@lru_cache(maxsize=1)
def _environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("corpusmill.pipeline.report", "templates"), autoescape=False, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters.update(
        n=number, size=size, md=escape.markdown, code=escape.code, code_block=escape.code_block
    )
    jinja.globals.update(share=share)
    return jinja


def card(facts: Facts, published: Facts | None = None) -> str:
    """The card as Markdown. No text of the corpus is in it.

    `published`: of a publication, `front` (keys that stand above the text, instead of those of the run's own folder), `structure`
    (Markdown on its files), and `creator`, `contact` and `citation`, each None where the publisher did not state it.
    """
    page = _environment().get_template("card.md.j2")
    body = page.render(f=facts, t=facts["totals"], licences=licences(facts), published=published)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    front = front_matter(facts)
    if published:
        front = {**{name: value for name, value in front.items() if name != "configs"}, **published["front"]}
    return f"---\n{_yaml(front)}---\n\n{body}\n"


def front_matter(facts: Facts) -> Facts:
    """What stands above the text, as the Hub's metadata specification names it. Unknown keys are left out."""
    kept = facts["totals"]["kept"]
    languages = [
        row["language"]
        for row in facts["languages"] or ()
        if re.fullmatch(r"[a-z]{2,3}", row["language"])
        and row["language"] != "und"
        and row["kept"] >= max(1, LANGUAGE_SHARE * kept)
    ]
    known = licences(facts)
    front: Facts = {"pretty_name": facts["name"]}
    if languages:
        front["language"] = sorted(languages)
    front["license"] = known[0] if len(known) == 1 else known
    if "other" in known:
        front["license_name"] = "see-licensing-information"
    front["size_categories"] = [next((name for most, name in SIZES if kept < most), "n>1T")]
    front["task_categories"] = ["text-generation"]
    front["tags"] = ["corpusmill", "pretraining", "webdataset"]
    if facts["shards"] and facts["shards"]["sets"]:
        front["configs"] = _configs(facts["shards"]["sets"])
    return front


def licences(facts: Facts) -> list[str]:
    """Hub names of the sources' licences: `other` where it has no name, `unknown` where none is stated."""
    names = set()
    for source in facts["sources"]:
        name = (source["license"] or "unknown").strip().lower()
        name = re.sub(r"-(only|or-later)$", "", name)
        names.add(name if name in HUB_LICENSES or name == "unknown" else "other")
    return sorted(names)


def _configs(sets: list[Facts]) -> list[Facts]:
    """All sources as the default configuration, and each source as one; tars relative to the run's folder."""
    files: dict[str, dict[str, list[str]]] = {"default": {}}
    for entry in sets:
        if not entry["ntokens"]:
            continue
        path = f"shards/{entry['index'].rpartition('/')[0]}/*.tar"
        for name in ("default", entry["source"]):
            files.setdefault(name, {}).setdefault(entry["split"], []).append(path)
    return [
        {
            "config_name": name,
            **({"default": True} if name == "default" else {}),
            "data_files": [{"split": split, "path": paths} for split, paths in sorted(splits.items())],
        }
        for name, splits in files.items()
        if splits
    ]


def _yaml(value: Facts) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.representer.ignore_aliases = lambda *_: True  # a value that stands twice is written twice
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(value, out)
    return out.getvalue()
