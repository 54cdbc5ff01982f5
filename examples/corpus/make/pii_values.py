"""Synthetic personal data, secrets, look-alikes, and the sentences that carry them.

Nothing here belongs to a person: mail domains are reserved (RFC 2606), phone numbers are of the ranges that
NANPA, Ofcom and the Bundesnetzagentur keep for fiction, addresses are those of public name servers, cards and
IBANs are the published test numbers, and every key says EXAMPLE in a place where its format leaves room.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

Make = Callable[[random.Random], str]
ALNUM = string.ascii_letters + string.digits
FIRST_NAMES = (
    "anna",
    "james",
    "maria",
    "peter",
    "lucy",
    "omar",
    "chen",
    "ingrid",
    "paul",
    "elena",
    "david",
    "ruth",
)
LAST_NAMES = (
    "schmidt",
    "carter",
    "rossi",
    "novak",
    "okafor",
    "lindqvist",
    "moreau",
    "tanaka",
    "doyle",
    "weber",
)


def _pick(*values: str) -> Make:
    return lambda rng: rng.choice(values)


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(count))


def _email(rng: random.Random) -> str:
    first = rng.choice(FIRST_NAMES)
    last = rng.choice(LAST_NAMES)
    local = rng.choice(
        (f"{first}.{last}", f"{first[0]}{last}{rng.randrange(10, 99)}", f"{first}_{last}", f"{first}+news")
    )
    host = rng.choice(("mail.", "post.", "lists.", "uni-harbour.", "city-archive."))
    return f"{local}@{host}example.{rng.choice(('com', 'org', 'net'))}"


def _phone_us(rng: random.Random) -> str:
    area, line = rng.choice((202, 212, 303, 415, 617, 713)), f"555-01{_digits(rng, 2)}"
    return rng.choice(
        (f"({area}) {line}", f"{area}-{line}", f"+1 {area} {line}", f"{area}.{line.replace('-', '.')}")
    )


def _phone_uk(rng: random.Random) -> str:
    a, b, c = rng.choice((("20", "7946", "0"), ("161", "496", "0"), ("131", "496", "0"), ("113", "496", "0")))
    rest = c + _digits(rng, 3)
    return rng.choice((f"0{a} {b} {rest}", f"+44 {a} {b} {rest}", f"(0{a}) {b} {rest}"))


def _phone_de(rng: random.Random) -> str:
    stem = rng.choice(("30 23125", "69 90009", "40 66969", "89 99998", "221 4710"))
    return f"+49 {stem}{rng.choice((' ', ''))}{_digits(rng, 3)}"


def _ssn(rng: random.Random) -> str:
    return f"{rng.randrange(100, 650):03d}-{rng.randrange(10, 99)}-{rng.randrange(1000, 9999)}"


def _key(prefix: str, length: int, alphabet: str = ALNUM) -> Make:
    """`prefix`, EXAMPLE, and random characters up to `length` after the prefix."""
    return lambda rng: prefix + "EXAMPLE" + "".join(rng.choice(alphabet) for _ in range(length - 7))


def _slack(rng: random.Random) -> str:
    return "xoxb" + f"-{_digits(rng, 12)}-{_digits(rng, 12)}-" + _key("", 24)(rng)


def _jwt(rng: random.Random) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    claims = f'{{"sub":"example-{_digits(rng, 6)}","iss":"example.org"}}'.encode()
    return ".".join((part(b'{"alg":"HS256","typ":"JWT"}'), part(claims), part(rng.randbytes(32))))


def _pem(rng: random.Random) -> str:
    body = "MIIEXAMPLE" + base64.b64encode(rng.randbytes(430)).decode().rstrip("=")
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    return f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----"


# (kind, format) -> how many, how one is made, the sentences that carry it
FORMATS: dict[tuple[str, str], tuple[int, Make, tuple[str, ...]]] = {
    ("email", "email"): (
        22,
        _email,
        (
            "Copies of the full report may be had by writing to {} before the end of the month.",
            "Questions about this passage should be sent to {}, where they will be answered in turn.",
            "The clerk of the committee, who can be reached at {}, keeps the record of the debate.",
        ),
    ),
    ("phone", "us"): (
        12,
        _phone_us,
        (
            "The office answers calls on {} from nine in the morning until five in the afternoon.",
            "Anyone who wishes to speak at the hearing should call {} and leave a name.",
        ),
    ),
    ("phone", "uk"): (8, _phone_uk, ("The London bureau of the paper may be rung on {} during the week.",)),
    ("phone", "de"): (6, _phone_de, ("Our correspondent in Germany takes calls on {} after dinner.",)),
    ("ip", "ipv4"): (
        10,
        _pick(
            "198.41.0.4",
            "199.9.14.201",
            "192.33.4.12",
            "199.7.91.13",
            "192.203.230.10",
            "192.5.5.241",
            "192.112.36.4",
            "198.97.190.53",
            "192.36.148.17",
            "193.0.14.129",
        ),
        (
            "The last change to this page was made from the address {} late in the evening.",
            "According to the server log, the visitor at {} read the whole of the address twice.",
        ),
    ),
    ("ip", "ipv6"): (
        5,
        _pick(
            "2001:503:ba3e::2:30",
            "2001:500:2::c",
            "2001:500:2d::d",
            "2001:500:a8::e",
            "2001:7fd::1",
            "2606:4700:4700::1111",
        ),
        ("A second visitor, from {}, asked only for the closing words.",),
    ),
    ("card", "card"): (
        9,
        _pick(
            "4111 1111 1111 1111",
            "5555-5555-5555-4444",
            "378282246310005",
            "6011111111111117",
            "4242 4242 4242 4242",
            "5105105105105100",
            "3782 822463 10005",
            "4012888888881881",
        ),
        (
            "The fee for the printed volume was charged to the card {} on the same day.",
            "A member paid the subscription with the card number {} and asked for a receipt.",
        ),
    ),
    ("iban", "iban"): (
        9,
        _pick(
            "DE89 3704 0044 0532 0130 00",
            "GB29NWBK60161331926819",
            "AT611904300234573201",
            "FR14 2004 1010 0505 0001 3M02 606",
            "NL91ABNA0417164300",
            "ES9121000418450200051332",
            "BE71 0961 2345 6769",
            "CH9300762011623852957",
            "SE4550000000058398257466",
            "PL61109010140000071219812874",
        ),
        (
            "Donations towards the cost of printing can be paid into the account {} at any time.",
            "The society keeps its small fund in the account {} and publishes the balance every year.",
        ),
    ),
    ("ssn", "ssn"): (
        8,
        _ssn,
        ("The witness gave his social security number as {} and signed the statement.",),
    ),
    ("secret", "aws_access_key"): (
        3,
        lambda rng: "AK" + "IA" + "".join(rng.choices(string.ascii_uppercase + "234567", k=9)) + "EXAMPLE",
        ("The script that fetched this text still had the key {} written into it.",),
    ),
    ("secret", "github_token"): (
        3,
        _key("gh" + "p_", 36),
        ("Somebody had left the token {} in the notes to this page.",),
    ),
    ("secret", "slack_token"): (
        2,
        _slack,
        ("The archive posts each new speech with the bot token {} to the editors.",),
    ),
    ("secret", "google_api_key"): (
        2,
        _key("AI" + "za", 35),
        ("The map beside this text was drawn with the key {} of the library.",),
    ),
    ("secret", "stripe_key"): (
        2,
        _key("sk_" + "test_", 24),
        ("The shop that sells the volume takes payments with the key {} today.",),
    ),
    ("secret", "jwt"): (2, _jwt, ("The reader was signed in with the token {} when the page was saved.",)),
    ("secret", "private_key"): (
        3,
        _pem,
        ("The machine that signs the archive was found to use this key:\n\n{}\n\nIt has been replaced.",),
    ),
}

# (what it resembles, the value, the sentence): each stays as it is
LOOKALIKES: tuple[tuple[str, str, str], ...] = (
    (
        "ip",
        "1.3.6.1.4.1.311",
        "The certificate carries an extension under the object identifier {} of the vendor.",
    ),
    ("ip", "8.8.4.4.1", "The procedure is laid down in section {} of the standing orders."),
    ("ip", "v2.33.44.556", "The text was set with version {} of the typesetting program."),
    ("ip", "192.168.1.17", "The printer in the reading room answers at {} on the inner network."),
    ("ip", "127.0.0.1", "During the test the page was served from {} on the same machine."),
    ("ip", "256.300.12.999", "A misprint in the first edition gave the number {} without any explanation."),
    ("ip", "fe80::1", "The router of the reading room uses the link-local address {} by default."),
    ("ip", "00:1A:2B:3C:4D", "The label on the old network card reads {} in faded ink."),
    (
        "card",
        "4111 1111 1111 1112",
        "The form shows the impossible card number {} to explain the check digit.",
    ),
    ("card", "978-0-306-40615-7", "The volume was published with the number ISBN {} in the same year."),
    ("card", "1234 5678 9012 3456", "The sample form is filled in with the number {} in every line."),
    (
        "iban",
        "DE89 3704 0044 0532 0130 01",
        "The leaflet warns that an account number such as {} fails its check.",
    ),
    ("iban", "GB00NWBK60161331926819", "The teaching example {} is wrong in its second pair of characters."),
    ("ssn", "000-12-3456", "The training form uses the number {} that was never given to anybody."),
    ("ssn", "666-45-6789", "Another form shows {} in its place, which no office has ever issued."),
    ("ssn", "123-45-67890", "The shelf mark of the bound volume is {} in the catalogue."),
    ("phone", "1914-1918", "The speech looks back on the years {} at some length."),
    ("phone", "2023-10-05", "The text was last compared with the original on {} by two readers."),
    ("phone", "3-16-148410-0", "The older paperback is listed as ISBN {} by the bookshops."),
    ("phone", "10023-88471-A", "The order number {} must be quoted when a copy is requested."),
    ("email", "editor@localhost", "Messages that fail are kept for {} until the morning."),
    ("email", "@dataclass", "A footnote explains the decorator {} to readers who know no programming."),
    ("secret", "AKIA1234", "The short mark {} on the cover is that of the binder."),
    (
        "secret",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "The checksum of an empty file is {} on every machine.",
    ),
    (
        "secret",
        "123e4567-e89b-12d3-a456-426614174000",
        "The record is filed under the identifier {} in the database.",
    ),
    ("secret", "ghp_short", "A label of the form {} marks the drafts of the group."),
)
LOOKALIKE_COUNT = 110
