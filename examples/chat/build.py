"""Write the conversations of the fine-tuning example: questions that a very small model can learn to answer, each in several wordings,
and answers that keep the style guide beside them (`style.yaml`). `python examples/chat/build.py` writes the same bytes again.

`chat.jsonl`: conversations; `pairs.jsonl`: an answer in the style, preferred to one that rambles; `prompts.jsonl`: questions of which
no wording is in the other files. `raw/` is what `configs/recipes/chat.yaml` cleans, besides `chat.jsonl`: `tasks.csv`, word problems in
Alpaca's form; `planted.jsonl`, copies, addresses, an item of the evaluation set `evaluation.jsonl`, and lines that are no conversations.
Public domain (CC0): nobody's text is in them.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
HELD_OUT = 0.1  # of the questions
SEED = 7
EVALUATED = 5  # word problems that are in the evaluation set alone


class Question(NamedTuple):
    """Wordings of a question, and its answer in the style and out of it."""

    wordings: list[str]
    answer: str
    rambling: str


DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
]  # fmt: skip
OPPOSITES = (
    "hot cold, big small, up down, left right, old new, fast slow, high low, long short, open closed, full empty, hard soft, "
    "light dark, wet dry, early late, loud quiet, near far, rich poor, strong weak, thick thin, wide narrow, true false, clean dirty, "
    "deep shallow, easy difficult, first last, good bad, happy sad, heavy light, inside outside, young old"
)
CAPITALS = (
    "France Paris, Italy Rome, Spain Madrid, Germany Berlin, Greece Athens, Austria Vienna, Norway Oslo, Sweden Stockholm, "
    "Poland Warsaw, Portugal Lisbon, Ireland Dublin, Egypt Cairo, Japan Tokyo, China Beijing, Russia Moscow, Canada Ottawa, "
    "Cuba Havana, Peru Lima, Chile Santiago, Kenya Nairobi, India Delhi, Hungary Budapest, Denmark Copenhagen, Finland Helsinki"
)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(one, other) for one, other in (pair.split() for pair in text.split(", "))]


def questions() -> list[Question]:
    """All of them, in a fixed order."""
    found = []
    for a in range(10):
        for b in range(10):
            wordings = [f"What is {a} plus {b}?", f"Add {a} and {b}.", f"{a} + {b} = ?"]
            found.append(asked(wordings, f"{a} plus {b} is {a + b}"))
    for names in (DAYS, MONTHS):
        for one, after in zip(names, [*names[1:], names[0]], strict=True):
            found.append(
                asked([f"What comes after {one}?", f"Which one follows {one}?"], f"{after} comes after {one}")
            )
            found.append(
                asked(
                    [f"What comes before {after}?", f"Which one precedes {after}?"],
                    f"{one} comes before {after}",
                )
            )
    for one, other in pairs(OPPOSITES):
        wordings = [
            f"What is the opposite of {one}?",
            f"Give the opposite of {one}.",
            f"Not {one}, but what?",
        ]
        found.append(asked(wordings, f"The opposite of {one} is {other}"))
    for country, city in pairs(CAPITALS):
        wordings = [
            f"What is the capital of {country}?",
            f"Name the capital of {country}.",
            f"Which city governs {country}?",
        ]
        found.append(asked(wordings, f"The capital of {country} is {city}"))
    return found


def asked(wordings: list[str], fact: str) -> Question:
    said = fact[0].upper() + fact[1:]
    return Question(
        wordings,
        f"{said}.",
        f"well please note that i think that {fact[0].lower()}{fact[1:]} and very sorry if not",
    )


def word_problems(rng: random.Random) -> list[dict[str, str]]:
    """Additions in words, in Alpaca's form: no two of them with the same words."""
    people, things = (
        ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn"),
        ("apples", "books", "cups", "dice", "eggs", "flags"),
    )
    places = ("in the market by the river", "from a friend at school", "on the way home in the evening")
    found = []
    for number, person in enumerate(people * 20):
        thing, place = rng.choice(things), rng.choice(places)
        a, b = rng.randrange(2, 50), rng.randrange(2, 50)
        asked_for = (
            f"{person} has {a} {thing} and gets {b} more {place}, for box {number}. How many are there now?"
        )
        found.append(
            {
                "instruction": "Answer in one sentence.",
                "input": asked_for,
                "output": f"{person} has {a + b} {thing} now.",
            }
        )
    return found


def planted(tasks: list[dict[str, str]]) -> list[dict[str, object]]:
    """What the recipe should find. The addresses and the number are of ranges that belong to nobody (RFC 2606; 555-01xx)."""
    return [
        dict(
            talk(
                [("Whom do I ask about my bill?", "Write to jane.doe@example.org, or call +1 202-555-0143.")]
            )
        ),
        # An item of the evaluation set, in a conversation of other words.
        dict(talk([("Hello there.", "Hello!"), (tasks[0]["input"], f"I think that {tasks[0]['output']}")])),
        dict(talk([("Can you say nothing?", "")])),
        {"messages": [{"role": "user", "content": "Is anybody there?"}]},
        {
            "messages": [
                {"role": "narrator", "content": "It was late."},
                {"role": "assistant", "content": "Yes."},
            ]
        },
        {"question": "Which form is this?", "reply": "None that is known."},
    ]


def talk(turns: list[tuple[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {
        "messages": [
            message
            for question, answer in turns
            for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
        ]
    }


def write(name: str, rows: list[dict[str, object]]) -> None:
    (HERE / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{name}: {len(rows):,} lines")


def main() -> None:
    rng = random.Random(SEED)
    every = questions()
    rng.shuffle(every)
    held = [one for number, one in enumerate(every) if number < HELD_OUT * len(every)]
    known = every[len(held) :]
    singles = [(wording, one.answer) for one in known for wording in one.wordings]
    rng.shuffle(singles)
    chat: list[dict[str, object]] = [dict(talk([turn])) for turn in singles]
    chat += [dict(talk([singles[n], singles[(n * 7 + 3) % len(singles)]])) for n in range(0, len(singles), 3)]
    rng.shuffle(chat)
    write("chat.jsonl", chat)
    preferred: list[dict[str, object]] = [
        {"prompt": wording, "chosen": one.answer, "rejected": one.rambling}
        for one in known
        for wording in one.wordings
    ]
    rng.shuffle(preferred)
    # A text as a prompt is a user's message where an answer is the assistant's.
    write(
        "pairs.jsonl",
        [
            {
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "chosen": [{"role": "assistant", "content": row["chosen"]}],
                "rejected": [{"role": "assistant", "content": row["rejected"]}],
            }
            for row in preferred
        ],
    )
    write("prompts.jsonl", [{"prompt": one.wordings[0], "answer": one.answer} for one in held])
    tasks = word_problems(rng)
    (HERE / "raw").mkdir(exist_ok=True)
    with (HERE / "raw/tasks.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["instruction", "input", "output"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(tasks[EVALUATED:])
    print(f"raw/tasks.csv: {len(tasks) - EVALUATED:,} rows")
    evaluated = [
        {"question": f"{one['instruction']} {one['input']}", "answer": one["output"]}
        for one in tasks[:EVALUATED]
    ]
    write("raw/evaluation.jsonl", evaluated)
    write("raw/planted.jsonl", [*chat[:3], *planted(tasks)])


if __name__ == "__main__":
    main()
