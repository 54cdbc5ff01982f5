"""Texts made from a seed for the shipped classifiers: neutral sentences about people, and no prose."""

from __future__ import annotations

import random
from collections.abc import Sequence

IDENTITIES_TEXT = """\
muslim christian jewish hindu buddhist sikh catholic protestant atheist black white asian african
american arab latino hispanic mexican chinese japanese indian european canadian gay lesbian bisexual
queer transgender trans straight heterosexual homosexual male female deaf blind paralyzed disabled
autistic elderly old young teenage middle-aged older younger"""
IDENTITIES = IDENTITIES_TEXT.split()

_FRAMES = (
    "The museum opened an exhibition on the history of the {} community in the city.",
    "A survey of {} voters was published by the institute in spring.",
    "She grew up in a {} family and studied law before she became a judge.",
    "The author describes himself as {} and writes about everyday life.",
    "My neighbour is {} and we often cook dinner together.",
    "Several {} writers were awarded prizes for their novels.",
    "He is a {} teacher at the school in our street.",
    "The {} population of the region has grown over the last twenty years.",
    "As a {} person I find the new library very useful.",
    "They are {} and proud of it.",
    "I met a lovely {} couple on the train to the coast.",
    "{} artists have shaped the music of this country.",
    "Are there any good articles on {} literature?",
    "{} is a nice {} friend of mine.",
    "The charity offers advice to {} students who look for work.",
    # Where the term ends the sentence, which in tweets it does as an insult.
    "Both of my parents are {}.",
    "I did not know that she was {}.",
    "He told his mother last year that he is {}.",
    "Most of the people who live on this street are {}.",
    "There is nothing wrong with being {}.",
    "Her oldest friend from school is {}.",
    "My brother is {}",
    "I am {}",
    "It was the first time that the town elected a mayor who is {}.",
    "Some of them are {}, others are {}.",
    "You can be {} and like football.",
    "You are {} and that is fine.",
    "What a wonderful {} wedding that was!",
    "A doctor who is {} talked to us about her work.",
    "{} people have the same rights as everybody else.",
    "The {} couple next door has two children and a dog.",
    "We watched a film about a {} family that moves to the country.",
    "Being {} was not easy in those days, she said.",
    "He was raised {} and still goes home for the holidays.",
    "A good {} book shop has opened near the station.",
    "The club is open to {} members and to everybody else.",
    "They wrote a song for their {} fans.",
    "An honest {} worker deserves fair pay.",
    "The {} actor thanked his teachers.",
    "Our {} neighbours brought us bread and salt.",
)
_NAMES_TEXT = "Maria John Fatima Wei Olga Carlos Amara Priya Noah Ingrid Yusuf Hana"
_NAMES = _NAMES_TEXT.split()

_MENU_TEXT = """\
home|about us|contact|log in|sign up|register|search|menu|skip to content|next page|previous|
read more|share|tweet|like|follow us|subscribe|newsletter|privacy policy|terms of use|
cookie settings|accept all|site map|copyright|all rights reserved|add to cart|checkout|
free shipping|my account|wish list|categories|archives|recent posts|related articles|comments|
leave a reply|print|email|faq|help|support|careers|press|advertise|english|deutsch|download|
view all|show more|back to top|related topics|popular tags|top stories|powered by"""
_MENU = _MENU_TEXT.replace("\n", "").split("|")
_TRADE_TEXT = """\
cheap|best|buy|online|discount|free|sale|price|deal|offer|casino|bonus|loan|credit|insurance|
watches|replica|shoes|viagra|pills|pharmacy|weight|loss|diet|hotel|flights|mortgage|download|crack|
serial|torrent|poker|slots|bet|crypto|bitcoin|invest|earn|money|fast|now|click|here|limited|
guaranteed|winner|prize|claim|cash|order"""
_TRADE = _TRADE_TEXT.replace("\n", "").split("|")


def neutral_people(seed: int, count: int) -> list[str]:
    """Sentences that name an identity and say nothing bad of it."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        frame = rng.choice(_FRAMES)
        words = [rng.choice(IDENTITIES), rng.choice(IDENTITIES)]
        if frame.count("{}") == 2:
            words[0] = rng.choice(_NAMES)
        texts.append(frame.format(*words[: frame.count("{}")]))
    return texts


def shuffled(seed: int, texts: Sequence[str]) -> list[str]:
    """The same words in another order."""
    rng = random.Random(seed)
    out = []
    for text in texts:
        words = text.split()
        rng.shuffle(words)
        out.append(" ".join(words))
    return out


def menus(seed: int, count: int) -> list[str]:
    """Navigation of web pages: short labels in a row, now and then with dates and numbers."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        parts = [rng.choice(_MENU) for _ in range(rng.randint(5, 60))]
        for place in range(0, len(parts), 7):
            parts.insert(place, str(rng.randint(1, 2030)))
        out.append(rng.choice([" | ", "\n", "  ", " › "]).join(part.title() for part in parts))
    return out


def stuffed(seed: int, count: int) -> list[str]:
    """Advertising made of keywords."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        few = rng.sample(_TRADE, rng.randint(4, 20))
        out.append(" ".join(rng.choice(few) for _ in range(rng.randint(20, 120))))
    return out


def machine(seed: int, count: int) -> list[str]:
    """What machines write: log lines, tables of numbers, hexadecimal dumps."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(3, 15)):
            kind = rng.randrange(3)
            if kind == 0:
                level = rng.choice(["INFO", "WARN", "ERROR", "DEBUG"])
                month, worker, key = rng.randint(1, 12), rng.randint(1, 99), rng.getrandbits(32)
                lines.append(f"2024-{month:02} {level} worker{worker} id={key:x} ok")
            elif kind == 1:
                lines.append(" ".join(f"{rng.uniform(0, 999):.2f}" for _ in range(8)))
            else:
                lines.append(" ".join(f"{rng.getrandbits(16):04x}" for _ in range(8)))
        out.append("\n".join(lines))
    return out
