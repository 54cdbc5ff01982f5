"""Documents with people's data planted in text and fields: the tests of what is redacted, and of what is left."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote


def person(number: int) -> dict[str, str]:
    """Address and telephone number of a person who is not, by number."""
    draw = random.Random(number)
    return {
        "mail": f"Person.{number}@mail{number % 7}.site.org",
        "phone": f"212{draw.randrange(300, 999)}{draw.randrange(1000, 9999)}",
    }


def grouped(phone: str) -> str:
    """A number as people write it, by which it is recognised without a word beside it."""
    return f"({phone[:3]}) {phone[3:6]}-{phone[6:]}"


def records(people: int) -> list[dict[str, Any]]:
    """Of each person one record in which the data are recognised, and one in which they stand bare, in fields and text."""
    rows: list[dict[str, Any]] = []
    for number in range(people):
        who = person(number)
        mail, phone = who["mail"], who["phone"]
        rows.append(
            {"id": f"known-{number}", "text": f"Letter {number}: write to {mail} or call {grouped(phone)}."}
        )
        rows.append(
            {
                "id": f"{mail.lower()}" if number % 3 == 0 else f"bare-{number}",
                "text": f"Row {number} has {phone} and nothing that says what it is.",
                "url": (f"https://x.org/?m={quote(mail, safe='')}", f"https://x.org/u/{phone}/", f"mailto:{mail}")[number % 3],
                "author": {"name": f"N {number}", mail: int(phone)},
                "tags": [phone, {"contact": mail.upper()}],
            }
        )  # fmt: skip
    return rows


def write(file: Path, people: int) -> list[str]:
    """Write the records as JSON lines; everything that may stand nowhere afterwards, in small letters."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in records(people)), encoding="utf-8")
    return [value.lower() for number in range(people) for value in person(number).values()]
