"""Trains the shipped model for languages on the texts of `tools.language_texts`.

    python -m tools.train_language TEXTS.parquet MODEL.ftz [--without declaration] [--size 0.2]

fastText supervised (Joulin et al. 2017) on the words that classifiers see (`model_words.cleaned`): lower case, letters alone.
Examples are runs of 1 to 25 words cut at random from all texts of a language, so that short texts are learnt too; languages
with much text get more examples, and of each family of sources in proportion to the root of its size. One thread and a fixed
seed: the same texts give the same bytes.
"""

from __future__ import annotations

import argparse
import random
import string
import tempfile
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.filter.classifiers.fasttext_model import LABEL, fit
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.text.view import text_buffers
from tools.language_judged import LARGE
from tools.language_texts import NO_SPACES

SEED: Final = 20
SIZE: Final = 0.8  # share of the examples
MOST: Final = 11_000  # examples of a language with much text, of fewer by the root of its words
MUCH: Final = 400_000  # words
LEAST: Final = 600
LARGE_MORE: Final = 2.0  # times as many of a large one
WORDS: Final = 100_000  # of the dictionary, at most
# Fewer of those that much more is written in a relative of: what is seen of them is the prior of the answer.
PRIOR: Final = {
    label: float(part)
    for part, labels in (
        ("0.2", "sco wuu ie jam pcm"), ("0.3", "an yue rue io frp eml lld ltg glk azb pfl krl olo kw gsw"),
        ("0.4", "bs ast ia bar nds lij pms vec lmo nap scn crh mrj min bjn ban ace tyv dz nr zea fkv gag inh stq"), ("0.5", "nn ms gl oc sr"),
    )
    for label in labels.split()
}  # fmt: skip
# Words beside the Declaration that a language must have to become a label, and one that others name (lid.176, FLORES-200,
# CLD2), for which the Declaration will do, too.
LEAST_WORDS: Final = 8_000
LEAST_WORDS_NAMED: Final = 1_200
_LEFT_OUT_TEXT: Final = "isv hrx qt rsk egl kge sli shy ext prg ses btm"
LEFT_OUT: Final = frozenset(_LEFT_OUT_TEXT.split())  # made, or too near to a large one
_NAMED_TEXT: Final = """
ab ace ada af ak als am an ar arz as ast av awa ay az azb ba bal ban bar bcl be bem bg bho bi bjn bm bn bo bpy br bs bug bxr
ca ce ceb ch cjk ckb co cr crh cs csb cv cy da de dik diq dsb dty dv dyu dz ee el eml en eo es et eu fa ff fi fj fo fon fr frr
fur fy ga gaa gd gl gn gom gsw gu guc gv ha haw he hi hif hil hmn hne hr hsb ht hu hy ia ibb id ie ig ilo io is it iu ja jam jv
ka kaa kab kac kam kbp kea kek kg kha ki kk kl km kmb kn ko kr krc kri ks ksh ku kv kw ky la lad lb lez lg li lij lmo ln lo loz
lrc lt ltg lua luo lus lv mad mag mai mam mdf men mfe mg mhr mi min mk ml mn mni mos mr mrj ms mt mwl my myv mzn na nah nap nds
ne new ng nl nn no nr nso nv ny nyn oc om or os pa pag pam pap pcd pcm pfl pis pl pms pnb ps pt qu quc rm rn ro ru rue rw sa sah
sat sc scn sco sd se sg shn si sk sl sm sn so sq sr ss st su sus sv sw syr szl ta te tem tet tg th ti tiv tk tl tn to tpi tr ts
tt tum ty tyv udm ug uk umb ur uz ve vec vep vi vls vmw vo vro wa war wo wuu xal xh xmf yi yo yua yue za zea zh zu
"""
NAMED: Final = frozenset(_NAMED_TEXT.split())
LENGTHS: Final = ((1, 3), (4, 8), (9, 25), (9, 25))  # words of an example, drawn evenly
CHARACTERS: Final = ((2, 6), (7, 20), (20, 60), (20, 60))  # of an example in scripts without spaces
_UNMARKED_TEXT: Final = "yo ig ee ak fon bm wo ha mi haw sm to ty ln gn qu nv gaa dag"
UNMARKED: Final = frozenset(_UNMARKED_TEXT.split())
UNMARKED_SHARE: Final = 0.3
UNKNOWN_EXAMPLES: Final = 60  # of a language that is not learnt
UNKNOWN: Final = (
    "und"  # ISO 639-2's code for undetermined: codes, numbers and random letters are its examples
)

TRAIN: Final[dict[str, Any]] = {
    "dim": 48, "epoch": 3, "lr": 0.5, "wordNgrams": 1, "minn": 2, "maxn": 4, "bucket": 300_000,
    "seed": SEED, "loss": "softmax",
}  # fmt: skip
# Norms apart, three values a code: 16 codes a row, as many as of 32 dimensions with two.
QUANTIZE: Final[dict[str, Any]] = {"qnorm": True, "dsub": 3}


def streams(table: pa.Table) -> dict[str, dict[str, list[str]]]:
    """Label -> family -> cleaned texts."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for batch in table.to_batches(max_chunksize=1 << 16):
        data, offsets = text_buffers(batch["text"].cast(pa.large_string()))
        words, lines = cleaned(data, offsets[:-1], offsets[1:])
        raw = words.data.tobytes()
        for row, (label, family) in enumerate(
            zip(batch["label"].to_pylist(), batch["family"].to_pylist(), strict=True)
        ):
            line = raw[lines[row, 0] : lines[row, 1]].decode()
            if line:
                found[label][family].append(line)
    return found


def examples(label: str, families: dict[str, list[str]], size: float) -> Iterator[str]:
    """The examples of one label."""
    rng = random.Random(f"{SEED} {label}")
    whole = label in NO_SPACES
    pieces = {family: _shuffled(rng, texts) for family, texts in families.items()}
    counts = {
        family: sum(map(len, texts)) if whole else len(" ".join(texts).split())
        for family, texts in pieces.items()
    }
    total = sum(counts.values()) // (3 if whole else 1)
    more = LARGE_MORE if label in LARGE else PRIOR.get(label, 1.0)
    count = max(MOST * min(total / MUCH, 1.0) ** 0.5 * more, LEAST)
    roots = {family: n**0.5 for family, n in counts.items()}
    for family, texts in pieces.items():
        own = int(size * count * roots[family] / sum(roots.values())) + 1
        for line in (_runs_of_characters if whole else _runs_of_words)(rng, texts, own):
            yield without_marks(rng, label, line)


def without_marks(rng: random.Random, label: str, line: str) -> str:
    """A part of the examples of languages that are often typed without their marks, without them."""
    if label not in UNMARKED or rng.random() >= UNMARKED_SHARE:
        return line
    return "".join(char for char in unicodedata.normalize("NFD", line) if unicodedata.category(char) != "Mn")


def _shuffled(rng: random.Random, texts: list[str]) -> list[str]:
    texts = sorted(texts)
    rng.shuffle(texts)
    return texts


def _runs_of_words(rng: random.Random, texts: list[str], count: int) -> Iterator[str]:
    """Runs of words, from a place drawn at random in all texts put together."""
    words = " ".join(texts).split()
    for _ in range(count):
        length = rng.randint(*rng.choice(LENGTHS))
        first = rng.randrange(max(len(words) - length, 1))
        yield " ".join(words[first : first + length])


def _runs_of_characters(rng: random.Random, texts: list[str], count: int) -> Iterator[str]:
    text = " ".join(texts)
    for _ in range(count):
        length = rng.randint(*rng.choice(CHARACTERS))
        first = rng.randrange(max(len(text) - length, 1))
        yield text[first : first + length].strip() or text[:length]


_CODE_1: Final = (
    "def self return import none true false int str len for in range if else elif print args kwargs null void"
)
_CODE_2: Final = (
    "const var let function class public static new this float double std vector size idx tmp buf ptr cfg ctx"
)
_CODE_3: Final = (
    "div span href src px rgb utf http www html css js json xml sql select where df np pd ax fig fn impl mut"
)


def no_language(count: int) -> Iterator[str]:
    """Examples of what is no language: identifiers of programs, numbers and codes, letters drawn at random."""
    rng = random.Random(SEED)
    code = _CODE_1.split()
    code += _CODE_2.split()
    code += _CODE_3.split()
    for _ in range(count):
        kind, length = rng.randrange(4), rng.randint(3, 25)
        if kind == 0:
            yield " ".join(
                "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 12))) for _ in range(length)
            )
        elif kind == 1:
            yield " ".join(
                rng.choice(code)
                if rng.random() < 0.7
                else rng.choice(string.ascii_lowercase) + str(rng.randrange(10))
                for _ in range(length)
            )
        elif kind == 2:
            yield " ".join(
                "".join(rng.choices("0123456789abcdef", k=rng.randint(2, 16))) for _ in range(length)
            )
        else:
            yield " ".join(
                str(rng.randrange(10 ** rng.randint(1, 6))) + rng.choice(["", "", "kg", "x", "cm", "mb", "v"])
                for _ in range(length)
            )


def is_learnt(label: str, families: dict[str, list[str]]) -> bool:
    """Whether a language becomes a label: there is text enough beside the Declaration, or it is `NAMED`."""
    beside = [text for family, texts in families.items() if family != "declaration" for text in texts]
    words = sum(map(len, beside)) / 5 if label in NO_SPACES else sum(len(text.split()) for text in beside)
    if label in LEFT_OUT:
        return False
    if label in NAMED:
        return words + 1_500 * ("declaration" in families) >= LEAST_WORDS_NAMED
    return words >= LEAST_WORDS


def is_judged(label: str) -> bool:
    """Whether a language that is no label is kept to judge by whether the model says that it does not know it: one in two."""
    return zlib.crc32(label.encode()) % 2 == 0


def unknown(found: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Label -> the texts of the Declaration in languages that are not learnt, which are examples of `UNKNOWN`."""
    return {
        label: families["declaration"]
        for label, families in found.items()
        if "declaration" in families and not is_learnt(label, families) and not is_judged(label)
    }


def lines(table: pa.Table, size: float) -> list[str]:
    """The lines that fastText reads, in the order in which it does."""
    found = streams(table)
    out = []
    for label in sorted(found):
        if is_learnt(label, found[label]):
            out += [f"{LABEL}{label} {line}\n" for line in examples(label, found[label], size)]
    out += [f"{LABEL}{UNKNOWN} {line}\n" for line in no_language(int(size * MOST))]
    for label, texts in sorted(unknown(found).items()):
        rng = random.Random(f"{SEED} {label}")
        out += [
            f"{LABEL}{UNKNOWN} {line}\n"
            for line in _runs_of_words(rng, _shuffled(rng, texts), int(size * UNKNOWN_EXAMPLES))
        ]
    order = np.random.default_rng(SEED).permutation(len(out))
    return [out[n] for n in order]


def train(table: pa.Table, target: Path, size: float = 1.0, quantize: dict[str, Any] | None = None) -> int:
    """Write the model; the number of examples."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        source = Path(folder) / "train.txt"
        own = lines(table, size)
        source.write_text("".join(own), encoding="utf-8")
        counts = sorted(Counter(word for line in own for word in line.split()[1:]).values(), reverse=True)
        fit(source, target, {**TRAIN, "minCount": counts[WORDS] + 1 if len(counts) > WORDS else 1}, quantize)
    return len(own)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_language", description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--without", action="append", default=[], metavar="FAMILY", help="leave a family of sources out"
    )
    parser.add_argument("--size", type=float, default=SIZE, help="share of the examples")
    parser.add_argument("--plain", action="store_true", help="not quantised")
    given = parser.parse_args()
    table = pq.read_table(given.texts)
    if given.without:
        keep = ~np.isin(table["family"].to_numpy(zero_copy_only=False), given.without)
        table = table.filter(pa.array(keep))
    count = train(table, given.model, given.size, None if given.plain else QUANTIZE)
    print(f"{count:,} examples; {given.model.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
