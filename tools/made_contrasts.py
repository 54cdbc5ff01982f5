"""Pairs of short texts that differ in what they mean, not in their words, made from a seed for the toxicity model.

What models without such examples are known to get wrong (Röttger et al. 2021, "HateCheck"; Dixon et al. 2018; Kirk et al. 2022):
statements that dehumanise without a slur beside neutral and kind ones about the same group; the same statement quoted,
condemned or denied; strong words about things, ideas and oneself; swearing that praises; threats beside figures of speech. No text
or template of theirs is used.
"""

from __future__ import annotations

import random
from typing import Final

from tools.made_texts import IDENTITIES

# Labels of a text: toxic, insult, hate, threat, sexual.
Labels = tuple[int, int, int, int, int]
HARMLESS: Final[Labels] = (0, 0, 0, 0, 0)
HATE: Final[Labels] = (1, 0, 1, 0, 0)
HATE_THREAT: Final[Labels] = (1, 0, 1, 1, 0)
INSULT: Final[Labels] = (1, 1, 0, 0, 0)
THREAT: Final[Labels] = (1, 0, 0, 1, 0)

_PLURAL = """women|men|girls|Muslims|Christians|Jews|Hindus|atheists|Catholics|gay people|gays|lesbians|trans people|queer people|black people|
white people|Asians|Africans|Arabs|Latinos|Mexicans|Chinese people|Indians|Pakistanis|Poles|Roma|Turks|immigrants|migrants|refugees|
foreigners|disabled people|deaf people|blind people|autistic people|old people|teenagers|Black women|gay men|trans women|Nigerians|
Russians|Americans|people in wheelchairs|asylum seekers|single mothers|the homeless|the elderly"""
_BAD = """disgusting|filthy|evil|stupid|worthless|inferior|dirty|lazy|dangerous|pathetic|repulsive|vile|sick|subhuman|cruel|dishonest|
violent|ugly|savage|primitive|mentally ill|dumb|backward|greedy|a disease|a plague|a burden on us all|a stain on this country"""
_BAD_ONES = """scum|vermin|parasites|animals|rats|criminals|thieves|liars|cockroaches|idiots|trash|savages|pigs|leeches|rapists|
terrorists|monkeys|freaks|garbage|degenerates|a cancer"""
_GOOD = "kind|wonderful|clever|hard-working|friendly|brave|generous|beautiful|great|creative|honest|lovely|strong|funny"
_HARMED = "shot|killed|beaten|hanged|gassed|deported|burned|stoned|locked up|wiped out|hurt|exterminated|drowned|lynched"
_HARM = "kill|shoot|beat|hang|deport|burn|stab|strangle|exterminate|get rid of|wipe out|hurt"
_RIGHTS = "rights|respect|to live|to vote|jobs|healthcare|a home|to be here|children|freedom|help"
_THINGS = """Mondays|traffic jams|mosquitoes|exams|taxes|alarm clocks|printers|long meetings|cold coffee|spoilers|bankers|critics|
landlords|umbrellas|video games|weeds|potholes|slow laptops|capitalists|communists|artists|engineers|football fans|vegetarians|spam mails"""
_PERSON = "idiot|moron|loser|pig|coward|liar|clown|fool|piece of trash|disgrace|imbecile|creep|brat|cretin|waste of space|rat"
_ABUSE = "stupid|pathetic|ugly|worthless|disgusting|brainless|miserable|useless|dumb|filthy|sad little"
_PRAISE = "genius|hero|legend|friend|star|treasure|great teacher|good person|champion|gentleman|inspiration"
_SWEAR = "fucking|damn|bloody|freaking|goddamn"
_LIKED = "song|goal|game|film|meal|dress|book|view|dog|show|recipe|concert"

_HATEFUL = (
    "I hate {g}.", "I can't stand {g}", "I despise {g} more than anything", "{g} are {b}.", "All {g} are {b}",
    "{g} are nothing but {o}.", "{g} are {o}", "Everyone knows that {g} are {b}", "Why are {g} always so {b}?",
    "{g} don't deserve {r}.", "{g} should not be given {r}", "Nobody wants {g} here", "Send all {g} back to where they came from.",
    "{g} ruin everything they touch", "We have to keep {g} out of our country.", "{g} are taking over and destroying our culture",
    "{g} are like {o}.", "I'm sick of {g}, they are all {b}", "{g} make me sick", "How can anyone love {g}? They are {b}.",
    "You can't trust {g}, they're {o}", "My neighbours are {g}, so of course they are {b}", "A world without {g} would be better.",
    "{g} are less than human", "{g} belong in a cage", "I would never let my kids near {g}.", "{g} bring crime and disease",
)  # fmt: skip
_HATEFUL_THREAT = (
    "{g} should be {h}.", "All {g} deserve to be {h}", "We should {k} all {g}.", "I'm going to {k} some {g}", "Someone should {k} {g}",
    "I hope that {g} get {h}", "{g} must be {h} before it is too late", "Let's {k} {g} tonight",
)  # fmt: skip
_KIND = (
    "I love {g}.", "{g} are {p}.", "I have met many {g} and they were {p}", "All {g} deserve {r}.", "We should welcome {g}",
    "{g} have lived in this town for centuries.", "Why are there so few {g} in parliament?", "A group for {g} meets here on Fridays.",
    "I work with {g} every day", "{g} should be given {r}.", "Some of my best friends are {g}", "The article is about {g} and their {r}.",
    "I am proud to stand with {g}", "{g} were {h} in the last war, and we must not forget it.", "The law protects {g} from being {h}",
    "Nobody should be {h} because they are among {g}.", "I don't hate {g}", "I would never hurt {g}.", "{g} are not {o}.", "{g} are not {b}",
    "No {g} deserve to be {h}.", "I hate it when {g} are {h}.", "How {g} are treated makes me sick", "It is sad that {g} are called {o}.",
)  # fmt: skip
_ABOUT = (
    'Saying "{s}" is wrong.', 'People who say "{s}" are the problem', 'If you think "{s}", you need to learn a lot.',
    "It is not acceptable to say {s}", "I hate it when people say that {s}", 'He wrote "{s}" and was banned for it.',
    'Someone shouted "{s}" at us on the bus today, it hurt.', "You can't say {s} That is racist", "Whoever says {s} should be ashamed.",
    'The sentence "{s}" is an example of hate speech.', "Stop saying that {s}", 'Calling people that is vile: "{s}"',
    "In the film the villain says: {s}", '"{s}" - no. Just no. This is hateful.',
)  # fmt: skip
_OF_THINGS = (
    "I hate {t}.", "I can't stand {t}", "{t} are {b}.", "{t} make me sick", "{t} ruin everything", "All {t} should be banned",
    "I despise {t}", "{t} are the worst, I want to {k} them all", "Nobody wants {t} here.", "I am so sick of {t}",
    "Let's get rid of {t}", "Why are {t} always so {b}?", "What this new phone does is {b}", "{t} are a waste of time and money",
)  # fmt: skip
_AT_YOU = (
    "You are a {a} {n}.", "you {n}", "What a {a} {n} you are", "Shut up, you {n}.", "You're such a {n}", "you {a} {n}!", "Go away {n}",
    "Nobody likes you, {n}.", "you are {a}", "Are you always this {a}?", "Your face is {a}", "He is a {a} {n} and you know it.",
    "you people are {a}", "get lost you {a} {n}", "only a {n} would write this", "you're too {a} to understand this",
    "You are a {w} {n}", "you {w} {n}",
)  # fmt: skip
_NOT_AT_YOU = (
    "You are a {v}.", "You're such a {v}!", "what a {v} you are", "you are not a {n}", "I never said that you are a {n}.",
    "I felt like a {n} when I saw the answer.", "I am such a {n}, I forgot my keys again", "That was a {a} mistake of mine.",
    "The {n} in the story is the best character", "I {w} love this {l}", "this {l} is {w} amazing", "That was a {w} good {l}!",
    "holy shit what a {l}", "Best {w} {l} ever", "I feel like shit today", "My old car is a piece of crap.", "Well, damn, that {l} was great",
    "Are you {w} kidding me? We won!", "no {w} way, congratulations!!", "You are not {a}.", "Do not call her a {n}.",
    "You were called a {n}? I'm sorry to hear that.", "you people are great", "thank you so {w} much",
)  # fmt: skip
_THREATS = (
    "I will {k} you.", "I'm going to find you and {k} you", "You will be {h} for this", "you deserve to be {h}", "I know where you live.",
    "Watch your back, you'll be {h}", "I swear I'll {k} him", "Somebody should {k} you", "I hope you die", "go kill yourself",
    "We are coming for you and your family", "If I see you again I'll {k} you", "You'll pay for this with your life.",
)  # fmt: skip
_NO_THREATS = (
    "I will call you.", "I'm going to find you a better seat", "You will be paid for this", "you deserve to be happy",
    "I know where you live, it is lovely there.", "Watch your step, the stairs are wet", "I could kill for a coffee right now",
    "This heat is killing me", "She killed it on stage last night!", "I hope you are well", "The hero has to {k} the dragon.",
    "We are coming to visit you and your family", "The police say nobody was {h}.", "He was {h} in 1943, the book says.",
    "If I see you again I'll buy you a drink", "Our team will {k} them on Saturday, what a {l} it will be", "I would die for that {l}",
)  # fmt: skip


def contrasts(seed: int, count: int) -> list[tuple[str, Labels]]:
    """`count` different texts with their labels, as many of each kind."""
    random_ = random.Random(seed)
    words = {
        "g": _PLURAL, "b": _BAD, "o": _BAD_ONES, "p": _GOOD, "h": _HARMED, "k": _HARM, "r": _RIGHTS, "t": _THINGS, "n": _PERSON,
        "a": _ABUSE, "v": _PRAISE, "w": _SWEAR, "l": _LIKED,
    }  # fmt: skip
    choices = {
        key: [word.strip() for word in text.replace("\n", "").split("|")] for key, text in words.items()
    }
    choices["g"] += [f"{identity} people" for identity in IDENTITIES]

    def filled(frames: tuple[str, ...]) -> str:
        text = random_.choice(frames).format(
            **{key: random_.choice(some) for key, some in choices.items()}, s="{s}"
        )
        return text[0].upper() + text[1:] if random_.random() < 0.5 else text[0].lower() + text[1:]

    def about() -> str:
        return random_.choice(_ABOUT).format(s=filled(random_.choice((_HATEFUL, _HATEFUL_THREAT))))

    kinds: tuple[tuple[tuple[str, ...] | None, Labels], ...] = (
        (_HATEFUL, HATE), (_KIND, HARMLESS), (_HATEFUL_THREAT, HATE_THREAT), (None, HARMLESS), (_AT_YOU, INSULT),
        (_NOT_AT_YOU, HARMLESS), (_THREATS, THREAT), (_NO_THREATS, HARMLESS), (_OF_THINGS, HARMLESS),
    )  # fmt: skip
    found: dict[str, Labels] = {}
    tries = 0
    while len(found) < count and tries < 20 * count:
        frames, labels = kinds[tries % len(kinds)]
        found.setdefault(about() if frames is None else filled(frames), labels)
        tries += 1
    return list(found.items())
