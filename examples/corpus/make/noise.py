"""What filters should remove: spam in several forms, texts that are too short, insults, other languages; and
garbled text, which should be repaired."""

from __future__ import annotations

import random

from .common import Record, garble

TRADES = (
    "plumber",
    "locksmith",
    "dentist",
    "roofer",
    "florist",
    "notary",
    "tutor",
    "mechanic",
    "painter",
    "caterer",
)
TOWNS = (
    "Riverton",
    "Oak Hill",
    "Easton",
    "Lakeview",
    "Marlow",
    "Fairfield",
    "Granby",
    "Weston",
    "Alder Creek",
    "Hilltop",
)
GOODS = (
    "running shoes",
    "office chairs",
    "phone cases",
    "garden lights",
    "coffee makers",
    "travel bags",
    "wool socks",
    "desk lamps",
    "bicycle helmets",
    "kitchen knives",
)
LATIN = """
    lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut
    labore et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris
    nisi aliquip ex ea commodo consequat duis aute irure in reprehenderit voluptate velit esse
    cillum fugiat nulla pariatur
"""
SCRAPS = (
    "Page not found.",
    "Click here to continue.",
    "Coming soon!",
    "Comments are closed.",
    "Read more",
    "Untitled document",
    "Nothing to see here yet.",
    "Sign in to view this page.",
    "Test test test.",
    "1 of 14 next",
    "Back to top",
    "Thank you for your visit.",
)
INSULTS = (
    "You are an idiot and everybody here knows it.",
    "What a pathetic loser you must be to write this garbage.",
    "Shut up, you stupid clown, nobody wants to read your crap.",
    "Only a complete moron could believe such nonsense.",
    "You are too dumb to understand the damn article that you are crying about.",
    "Go away, you disgusting little troll.",
    "Your ugly rants make me sick.",
    "Are you really this stupid or do you get paid for it?",
    "I hate you and your whole miserable gang of liars.",
    "You dirty liar, you should be ashamed of your worthless life.",
    "Get lost, you brainless fool.",
    "This page is run by a bunch of arrogant jerks.",
    "You whine like a spoiled brat and you smell like one.",
    "What the hell is wrong with you, you lunatic?",
    "Nobody likes you, creep.",
    "You ruined everything with your idiotic edits, you vandal scum.",
    "Take your bullshit somewhere else, dumbass.",
    "You are a coward and a hypocrite.",
    "I have never met a bigger imbecile in my life.",
    "Stop lying, you filthy rat.",
    "Your mother must be so ashamed to have raised such a dimwit.",
    "You people are trash.",
    "Keep crying, you sad, pathetic excuse for a human being.",
    "Damn you and your stupid rules.",
)
REMARKS = (
    "I wrote the section on the bridge last week and you deleted it again.",
    "The talk page is there for a reason.",
    "I told you three times that the date in the first line is wrong.",
    "Now the whole table has to be typed once more.",
    "You did not even read the book that you are quoting.",
    "The administrators will hear about this tomorrow.",
    "Last month you did the same thing to the article about the river.",
    "Everybody can see it in the history of the page.",
    "The picture was fine before you touched it.",
    "Find another hobby and leave the editing to people who can read.",
)


def spam(rng: random.Random) -> list[Record]:
    """60 pages in eight forms; each form breaks a rule of the Gopher or C4 family."""
    forms = (_keywords, _repeated_lines, _bullets, _lorem, _symbols, _ellipsis, _template, _code_dump)
    made = []
    for number in range(60):
        form = forms[number % len(forms)]
        text = form(rng)
        label = {"kind": "spam", "expected": "filter", "form": form.__name__.strip("_")}
        url = f"https://spam.example.net/{label['form']}/{number + 1}"
        made.append({"id": f"spam-{number + 1:03d}", "text": text, "url": url, "planted": label})
    return made


def _keywords(rng: random.Random) -> str:
    """Keyword stuffing: the same few phrases over and over (Gopher: top and duplicate n-grams)."""
    goods, town = rng.choice(GOODS), rng.choice(TOWNS)
    phrases = (
        f"cheap {goods}",
        f"buy {goods} online",
        f"{goods} in {town}",
        f"best price {goods}",
        f"discount {goods} {town}",
    )
    return ", ".join(rng.choice(phrases) for _ in range(rng.randrange(90, 140))) + "."


def _repeated_lines(rng: random.Random) -> str:
    """Duplicate lines (Gopher)."""
    goods = rng.choice(GOODS)
    lines = [
        f"Order your {goods} today and save {rng.randrange(20, 70)} percent.",
        f"All our {goods} ship for free.",
        "Limited offer, call now and ask for the manager.",
    ]
    return "\n".join(rng.choice(lines) for _ in range(40))


def _bullets(rng: random.Random) -> str:
    """More than nine lines of ten begin with a bullet (Gopher)."""
    return "\n".join(
        f"• {rng.choice(GOODS)} and {rng.choice(GOODS)} for the {rng.choice(TRADES)} of {rng.choice(TOWNS)}"
        for _ in range(rng.randrange(25, 45))
    )


def _lorem(rng: random.Random) -> str:
    """Placeholder text (C4)."""
    lines = ["Lorem ipsum dolor sit amet, " + " ".join(rng.choices(LATIN.split(), k=14)) + "."]
    lines += [
        " ".join(rng.choices(LATIN.split(), k=18)).capitalize() + "." for _ in range(rng.randrange(8, 14))
    ]
    return "\n\n".join(lines)


def _symbols(rng: random.Random) -> str:
    """A hash to nearly every word (Gopher: symbol-to-word ratio)."""
    words = [w for g in GOODS for w in g.split()] + list(TRADES)
    return " ".join(f"#{rng.choice(words)} # {rng.choice(words)}" for _ in range(rng.randrange(60, 90)))


def _ellipsis(rng: random.Random) -> str:
    """Nearly every line ends in an ellipsis (Gopher)."""
    return "\n".join(
        f"The {rng.choice(TRADES)} of {rng.choice(TOWNS)} tells us about {rng.choice(GOODS)}..."
        for _ in range(rng.randrange(20, 35))
    )


def _template(rng: random.Random) -> str:
    """A doorway page: one paragraph with a slot, several times over (Gopher: duplicate paragraphs)."""
    trade = rng.choice(TRADES)
    texts = [
        f"Are you looking for a {trade} in {town}? Our {trade} in {town} is the best {trade} that "
        f"{town} has to offer. Call the {trade} in {town} today."
        for town in rng.sample(TOWNS, 2)
    ]
    return "\n\n".join(texts[i % 2] for i in range(12))


def _code_dump(rng: random.Random) -> str:
    """Script left over from a page (C4: curly brackets, javascript)."""
    lines = [
        f'var item{i} = {{"name": "{rng.choice(GOODS)}", "price": {rng.randrange(5, 90)}}};'
        for i in range(30)
    ]
    return "\n".join(["Please enable javascript to see this shop", *lines])


def short(rng: random.Random) -> list[Record]:
    """12 texts under any minimum of words."""
    label = {"kind": "short", "expected": "filter"}
    return [
        {"id": f"short-{n:03d}", "text": t, "planted": label}
        for n, t in enumerate(rng.sample(SCRAPS, len(SCRAPS)), 1)
    ]


def toxic(rng: random.Random) -> list[Record]:
    """20 comments of insults without slurs; long enough, and in proper sentences, so that quality rules leave
    them to the toxicity classifier."""
    made = []
    for number in range(1, 21):
        parts = [*rng.sample(INSULTS, 6), *rng.sample(REMARKS, 2)]
        rng.shuffle(parts)
        label = {"kind": "toxic", "expected": "filter"}
        made.append({"id": f"toxic-{number:03d}", "text": " ".join(parts), "planted": label})
    return made


def non_english(paragraphs: list[Record]) -> list[Record]:
    return [
        {
            "id": f"non_english-{number:03d}",
            "text": p["text"],
            "planted": {
                "kind": "non_english",
                "expected": "filter",
                "language": p["language"],
                "of": p["id"],
            },
        }
        for number, p in enumerate(paragraphs, 1)
    ]


def mojibake(paragraphs: list[Record]) -> list[Record]:
    """Prose in book typography, garbled whole. A span for each garbled run has the right text."""
    made = []
    for number, p in enumerate(paragraphs, 1):
        clean = f"“{p['text']}” — from an address to the Congress, reprinted in the café’s gazette."
        clean = clean.replace("'", "’").replace("--", " — ")
        spans, text = [], ""
        for character in clean:
            piece = garble(character)
            if piece != character:
                spans.append(
                    {"start": len(text), "end": len(text) + len(piece), "value": piece, "repaired": character}
                )
            text += piece
        label = {"kind": "mojibake", "expected": "repair", "garbled": spans}
        made.append({"id": f"mojibake-{number:03d}", "text": text, "planted": label})
    return made
