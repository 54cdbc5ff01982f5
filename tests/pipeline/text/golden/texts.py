"""Texts of our own, hard for a tokenizer, from a seed: what the golden signatures of datatrove were made of.

Plain Python without the project, since `make.py` runs beside datatrove. A change here asks for a new golden file.
"""

from __future__ import annotations

import random

PARTS = {
    "ascii": ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "brew", "coffee", "quietly", "tonight"],
    "numbers": [
        "3.14", "1,000,000", "٣٫٥", "١٢٣", "12.34.56", "1e10", "0x1F", "42nd", "2024-01-31", "10:30", "50%", "१२३",
        "1،5", "7⎖2⎖9", "½", "①", "１２", "３．５", "1.", ".5", "1,,2", "٣.٥", "v2.0.1", "1\u03012", "5\u200b6",
    ],
    "arabic": ["النص", "العربي", "مع", "أَرْقَامٍ", "وحركات", "٠١٢٣", "وفاصلة،", "ثم", "كلمات", "أخرى", "هنا"],
    "cjk": ["漢字", "かな交じり", "文。", "日本語の", "文章", "ｶﾞｷﾞ", "が", "か\u3099", "中文，", "测试", "豈", "한국어", "각", "\u1100\u1161\u11a8"],
    "marks": [
        "e\u0301te\u0301", "\u0301lone", "a\u0316\u0301", "a\u0301\u0316", "नमस्ते", "ক\u09cb", "\u0f73", "\U0001d15e", "x\u302e\U0001d165y",
        "Z\u0351\u0326a\u030al\u0358g\u0327o\u0334", "\u0345", "ᾳ", "ᾼ", "\u1b44\U0001d165\U0001d16d", "ệ", "ñ",
    ],
    "greek": ["ΟΔΥΣΣΕΥΣ", "ΣΑΣ", "Σ", "ΑΣ.", "ΑΣ'Α", "ΑΣ:Β", "Α\u0301Σ", "ΑΣ\u0301", "ΑΣ\u00adΒ", "ΣΣ", "ὀδυσσεύς", "ʰΣ", "9Σ", "ΑΣ9"],
    "turkish": ["İstanbul", "ISPARTA", "ısı", "İİ", "I\u0307", "DİYARBAKIR", "iğne"],
    "german": ["Straße", "STRAẞE", "Weiß", "ÄÖÜ", "groß", "Füße", "ǅ", "ﬁn", "Ⱥ"],
    "controls": ["nul\x00byte", "\x01", "bell\x07", "tab\tstop", "line\nbreak", "cr\r\nlf", "\x1cfile", "del\x7f", "\x85next", "a\x9fb"],
    "spaces": ["\u00a0", "\u2003em", "thin\u2009space", "\u3000", "\u2028", "zero\u200bwidth", "\u200d", "\ufeffbom", "soft\u00adhyphen", "\u1680"],
    "emoji": ["😀", "👩‍👩‍👧", "☕️", "❤", "smile😀smile", "🇫🇷", "©2024", "™", "→", "€5", "£", "°C", "±3", "×"],
    "punctuation": ["don't", "l'été", "“quoted”", "(paren)", "semi;colon", "a/b", "C++", "e-mail", "x_y", "…", "¿qué?", "!?", "^", "`tick`", "\u1fef", "\u037e", "«guillemets»", "#tag", "@name"],
    "english": ["cannot", "gonna", "dont", "id", "im", "10km", "a.m.", "U.S.", "Mr.", "wont", "its", "lets", "5pm", "http://a.b/c?d=e", "me@x.org", ":)", "o'clock", "gimme"],
}  # fmt: skip
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def words_of_syllables(generator: random.Random, count: int) -> list[str]:
    """Words of three to five syllables, which no tokenizer takes apart."""
    return ["".join(generator.choices(SYLLABLES, k=generator.randint(3, 5))) for _ in range(count)]


def texts() -> list[str]:
    """The texts, the same on every machine."""
    generator = random.Random(20240131)
    found = ["", " ", "...", "\u0301", "one", "two words", "of four words only", "of exactly five words here"]
    found += [
        "\u0301 \u0301 a \u0301 b",
        "Σ",
        "İ",
        "0",
        "cannot go on like this",
        "a b c d \u0301",
        "x" * 40_000,
    ]
    for parts in PARTS.values():
        found += [" ".join(parts), "".join(parts)]
        for count in (3, 5, 8, 13, 40, 90):
            found.append(" ".join(generator.choices(parts, k=count)))
    everything = [part for parts in PARTS.values() for part in parts]
    for _ in range(100):
        some = generator.choices(everything, k=generator.randint(1, 120))
        found.append("".join(part + generator.choice([" ", " ", "\n", "", ", ", "  "]) for part in some))
    for size in (1_000, 32_768, 100_000, 1_000_000):
        found.append(" ".join(words_of_syllables(generator, size // 7))[:size].rpartition(" ")[0])
    return found
