"""Corpora whose answer is known, as recipes: what a stage removes is harmful or harmless by how it was made."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

BOOKS = Path(__file__).resolve().parent.parent / "examples/corpus/sources/books"
PASSAGES, SIZE = 900, 1500  # characters
STAGES = '''
import hashlib

import pyarrow as pa


def unmarked(docs: pa.Table) -> pa.Table:
    """Remove what was planted, which is a source of its own."""
    return docs.filter(pa.array([not name.startswith("planted") for name in docs["source"].to_pylist()]))


def everything(docs: pa.Table) -> pa.Table:
    """Remove nothing."""
    return docs


def at_random(docs: pa.Table, share: float = 0.3, seed: int = 0) -> pa.Table:
    """Remove a share of the documents, by a hash of their text."""
    keys = [hashlib.sha256(f"{seed} {text}".encode()).digest()[0] for text in docs["text"].to_pylist()]
    return docs.filter(pa.array([key >= 256 * share for key in keys]))
'''


class Planted(NamedTuple):
    """`sign`: 1 where the text is worse without the stage, 0 where nothing should change."""

    name: str
    stage: str
    sign: int
    recipe: dict[str, Any]


def pieces(size: int, seed: int, limit: int) -> list[str]:
    """Passages of about `size` characters of the example corpus's books, whole paragraphs, in another order for each seed; `limit` of them."""
    found, part = [], ""
    for file in sorted(BOOKS.rglob("*.txt")):
        for paragraph in file.read_text(encoding="utf-8").split("\n\n"):
            part = f"{part}\n\n{paragraph}" if part else paragraph
            if len(part) >= size:
                found.append(part)
                part = ""
    random.Random(seed).shuffle(found)
    return found[:limit]


def shuffled(text: str, seed: int) -> str:
    """Its words in another order."""
    words = text.split()
    random.Random(seed).shuffle(words)
    return " ".join(words)


def navigation(number: int, seed: int) -> str:
    """A page of links, as an extractor that takes everything leaves it."""
    own = random.Random(f"{seed} {number}")
    names = [
        "Home",
        "About",
        "Contact",
        "Login",
        "Archive",
        "Shop",
        "Help",
        "Terms",
        "Privacy",
        "News",
        "Careers",
        "Sitemap",
    ]
    lines = [
        f'<li><a href="/{own.choice(names).lower()}/{own.randrange(9999)}">{own.choice(names)}</a></li>'
        for _ in range(30)
    ]
    return '<ul class="nav">\n' + "\n".join(lines) + "\n</ul>"


def cases(folder: Path, seed: int = 0) -> list[Planted]:
    """Recipes with their sources written below `folder`."""
    texts = pieces(SIZE, seed, PASSAGES)
    half, third = len(texts) // 2, len(texts) * 3 // 10
    plants = {
        "shuffled words": [shuffled(text, seed) for text in texts[-third:]],
        "navigation": [navigation(number, seed) for number in range(third)],
    }
    (folder / "planted_stages.py").write_text(STAGES, encoding="utf-8")
    found = []
    for name, planted in plants.items():
        sources = {"clean": texts[: len(texts) - third], "planted": planted}
        recipe = recipe_of(folder / name.replace(" ", "-"), sources, "unmarked")
        found.append(Planted(name, "unmarked", 1, recipe))
    copies = [text for text in texts[: half // 20] for _ in range(20)]
    repeated = recipe_of(folder / "copies", {"clean": texts[half:], "planted": copies}, None)
    found.append(Planted("20 copies of half of the tokens", "dedup", 1, repeated))
    for stage in ("everything", "at_random"):
        found.append(
            Planted(stage.replace("_", " "), stage, 0, recipe_of(folder / stage, {"clean": texts}, stage))
        )
    return found


def recipe_of(folder: Path, sources: dict[str, list[str]], stage: str | None) -> dict[str, Any]:
    """A recipe of these texts, with the stage of that name before deduplication."""
    folder.mkdir(parents=True)
    for name, texts in sources.items():
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    own = [] if stage is None else [{"python": f"planted_stages:{stage}", "version": "1"}]
    return {
        "name": "planted", "output": str(folder / "run"),
        "sources": {
            name: {"paths": [str(folder / f"{name}.jsonl")], **({"min_kept": 0} if name == "planted" else {})} for name in sources
        },
        "stages": ["ingest", *own, "dedup", "split", "tokenizer", "shard"],
        "split": {"validation_share": 0.1, "per_source": {"planted": {"only": "train"}} if "planted" in sources else {}},
        "tokenizer": {"vocab_size": 1024}, "cluster": {"workers": 0, "import_from": [str(folder.parent)]},
    }  # fmt: skip
