"""What a `tokenizer.json` asks for, in terms of the kernels; or why only the library can do it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from corpusmill.pipeline.bpe.classes import (
    CJK_RANGES,
)
from corpusmill.pipeline.bpe.kernels.pretokenize import (
    CL100K,
    CLASSES,
    DEEPSEEK,
    DIGITS,
    GPT2,
    IDEOGRAPHS,
    NUMBERS,
    O200K,
    TEKKEN,
)

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def _gpt2(numbers: str) -> str:
    return rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?{numbers}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _cl100k(numbers: str) -> str:
    return rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_END}"


def _o200k(numbers: str, contractions: str) -> str:
    words = f"{_WORD}{_UPPER}*{_LOWER}+{contractions}|{_WORD}{_UPPER}+{_LOWER}*{contractions}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_END}"


_ANY, _THREE, _ONE = r"\p{N}+", r"\p{N}{1,3}", r"\p{N}"
_NUMBERS = {_ANY: 0, _THREE: 3, _ONE: 1}
_DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + _END
)
# Pattern, letter for letter -> (kind, most digits).
PATTERNS: Final = {
    **{_gpt2(numbers): (GPT2, most) for numbers, most in _NUMBERS.items()},
    **{_cl100k(numbers): (CL100K, most) for numbers, most in _NUMBERS.items()},
    **{_o200k(numbers, f"{_CONTRACTIONS}?"): (O200K, most) for numbers, most in _NUMBERS.items()},
    **{_o200k(numbers, ""): (TEKKEN, most) for numbers, most in _NUMBERS.items()},
    **{numbers: (NUMBERS, most) for numbers, most in _NUMBERS.items()},
    f"[{CJK_RANGES}]+": (IDEOGRAPHS, 0),
    _DEEPSEEK: (DEEPSEEK, 0),
}
_COVERING = {GPT2, CL100K, O200K, TEKKEN}  # patterns that leave nothing between their matches
_NAMES = {
    GPT2: "GPT-2", CL100K: "cl100k (Llama 3, Qwen 2)", O200K: "o200k (GPT-4o)", TEKKEN: "o200k without contractions",
    DIGITS: "digits", NUMBERS: "numbers", IDEOGRAPHS: "ideographs", DEEPSEEK: "DeepSeek",
}  # fmt: skip


class Reading(NamedTuple):
    """`steps`: (kind, most digits), each cutting the pieces of the one before. `classes`: the bits that they look at."""

    steps: list[tuple[int, int]]
    classes: int
    nfc: bool

    def name(self) -> str:
        """The steps in words."""
        names = [
            _NAMES[kind]
            + (f", {'one digit' if most == 1 else f'up to {most} digits'} a piece" if most else "")
            for kind, most in self.steps
        ]
        return " then ".join(names) or "no cuts"


class UnknownToUs(Exception):
    """What of a tokenizer the kernels do not know."""


def read(content: dict[str, Any]) -> Reading:
    """The steps of a `tokenizer.json`. Raises `UnknownToUs`, saying what is not known."""
    model = content["model"]
    if model.get("type", "BPE") != "BPE":
        raise UnknownToUs(f"its model is {model['type']}")
    if model.get("dropout"):
        raise UnknownToUs("it drops merges by chance (dropout)")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise UnknownToUs("its tokens have a prefix or suffix")
    steps: list[tuple[int, int]] = []
    byte_level = False
    for part in _parts(content.get("pre_tokenizer"), "pretokenizers"):
        if byte_level:
            raise UnknownToUs("something cuts behind its ByteLevel")
        if part["type"] == "ByteLevel":
            if part.get("add_prefix_space", True):
                raise UnknownToUs("it puts a space before each text")
            steps += [(GPT2, 0)] if part.get("use_regex", True) else []
            byte_level = True
        else:
            steps.append(_step(part))
    if not byte_level:
        raise UnknownToUs("it has no ByteLevel pre-tokenizer")
    bits = 0
    for kind, _ in steps:
        bits |= CLASSES[kind]
    return Reading(steps, bits, nfc(content))


def nfc(content: dict[str, Any]) -> bool:
    """Whether texts are put into canonical composition first. Raises `UnknownToUs` for any other normalizer."""
    kinds = [part["type"] for part in _parts(content.get("normalizer"), "normalizers")]
    if any(kind != "NFC" for kind in kinds):
        raise UnknownToUs(f"its normalizer ({', '.join(kinds)}) is another than NFC")
    return bool(kinds)


def _parts(section: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A section's parts in order, sequences taken apart."""
    if section is None:
        return []
    if section["type"] != "Sequence":
        return [section]
    return [inner for part in section[name] for inner in _parts(part, name)]


def _step(part: dict[str, Any]) -> tuple[int, int]:
    if part["type"] == "Digits":
        return DIGITS, 1 if part.get("individual_digits") else 0
    if part["type"] != "Split":
        raise UnknownToUs(f"its pre-tokenizer {part['type']}")
    pattern = part["pattern"].get("Regex", "")
    if pattern not in PATTERNS:
        raise UnknownToUs(f"its pattern {next(iter(part['pattern'].values()))[:60]!r}")
    kind, most = PATTERNS[pattern]
    behaviour = (part["behavior"], bool(part["invert"]))
    if behaviour != ("Isolated", False) and not (behaviour == ("Removed", True) and kind in _COVERING):
        raise UnknownToUs(f"what its Split does with matches ({part['behavior']})")
    return kind, most
