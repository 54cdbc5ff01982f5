"""Templates filled by Faker.

python fill_templates.py FILE    FILE: JSON {"seed", "copies", "locales", "forms", "providers", "templates": {language: [text]}};
prints a list of {"language", "text", "spans": [{"kind", "start", "end"}]} with offsets in characters
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from faker import Faker

LEFT = {"date", "amount", "count", "isbn", "range", "version", "point", "zip"}  # no finds


def value(fake: Faker, language: str, kind: str, given: dict) -> str:
    draw = fake.random
    if kind == "phone":
        made = fake.phone_number()
        if language == "es" and draw.random() < 0.8:  # as they are written within the country
            made = made.removeprefix("+34").strip()
        return made
    if kind == "date":
        return fake.date(draw.choice(["%d/%m/%Y", "%Y-%m-%d", "%d.%m.%Y"]))
    if kind == "amount":
        return draw.choice(
            ["1,234.50 EUR", "$12,500.00", "1.234,56 €", "350 000 EUR", f"{draw.randrange(100, 99999)} USD"]
        )
    if kind == "count":
        return str(draw.randrange(10, 999))
    if kind == "isbn":
        return fake.isbn13()
    if kind == "range":
        return f"{draw.randrange(1980, 2010)}-{draw.randrange(2010, 2024)}"
    if kind == "version":
        return f"{draw.randrange(9)}.{draw.randrange(20)}.{draw.randrange(300)}"
    if kind == "point":
        return f"{draw.uniform(-90, 90):.6f}, {draw.uniform(-180, 180):.6f}"
    if kind == "zip":
        return fake.bothify("#####")
    provider = given["providers"].get(f"{language} {kind}")
    return (
        str(getattr(fake, provider)())
        if provider
        else fake.bothify(draw.choice(given["forms"][kind]), letters="ABCDEFGHKLMNPRSTXYZ")
    )


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    documents = []
    for language, templates in given["templates"].items():
        for locale in given["locales"][language]:
            fake = Faker(locale)
            fake.seed_instance(given["seed"])
            for template in templates * given["copies"]:
                text, spans, at = "", [], 0
                for place in re.finditer(r"\{(\w+)\}", template):
                    text += template[at : place.start()]
                    made, at = value(fake, language, place[1], given), place.end()
                    if place[1] not in LEFT:
                        spans.append({"kind": place[1], "start": len(text), "end": len(text) + len(made)})
                    text += made
                documents.append({"language": language, "text": text + template[at:], "spans": spans})
    print(json.dumps(documents))


if __name__ == "__main__":
    main()
