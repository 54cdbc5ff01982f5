"""Numbers that belong to no one, in the form of real ones: national numbers, telephones, cards, IBANs.

Each is a function of a `Draw`. A check digit is right wherever there is a range that is never issued: test ranges
(Germany, Canada, the NHS, Aadhaar, the Dutch BSN), births in the 1800s (PESEL, personnummer), places that do not exist
(department 00, municipality Z0xx). Where there is none (CPF, DNI, NIE) the check is wrong on purpose: so the number belongs
to no one all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from corpusmill.pipeline.redact.scan import Kind


class Draw:
    """Numbers drawn from the bits of a digest, the same for the same digest."""

    def __init__(self, digest: bytes) -> None:
        self.bits = int.from_bytes(digest, "big")

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        self.bits, number = divmod(self.bits, limit)
        return number

    def digits(self, count: int) -> str:
        """`count` digits."""
        return f"{self.below(10**count):0{count}d}"

    def letters(self, count: int, alphabet: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> str:
        """`count` letters."""
        return "".join(alphabet[self.below(len(alphabet))] for _ in range(count))

    def date(self) -> tuple[int, int, int]:
        """Year of a century, month, day."""
        return self.below(100), 1 + self.below(12), 1 + self.below(28)


# --- cards: the first digits of the numbers that payment services publish for tests, by what a card begins with.
_TEST_CARDS: Final = (
    ("34", "378282", 15), ("37", "378282", 15), ("5", "555555", 16), ("2", "222300", 16), ("60", "601111", 16),
    ("64", "601111", 16), ("65", "601111", 16), ("35", "356600", 16), ("36", "305693", 14), ("30", "305693", 14),
    ("38", "305693", 14), ("39", "305693", 14), ("62", "620000", 16), ("", "400000", 16),
)  # fmt: skip
OWN_CARDS: Final = rb"(?:378282[0-9]{9}|3782 82[0-9]{4} [0-9]{5}|(?:4000 00|5555 55|2223 00|6011 11|3566 00|6200 00)[0-9]{2} [0-9]{4} [0-9]{4}|3056 93[0-9]{4} [0-9]{4})"


def card(value: str, draw: Draw) -> str:
    """A number of a test range of the same issuer, with its Luhn digit, in the issuer's groups."""
    _, prefix, size = next(row for row in _TEST_CARDS if value.startswith(row[0]))
    body = prefix + draw.digits(size - len(prefix) - 1)
    number = body + luhn(body)
    groups = (4, 4, 4, 4) if size == 16 else (4, 6, 5)
    return " ".join(cut(number, groups))


def cut(text: str, sizes: tuple[int, ...]) -> list[str]:
    """`text` in pieces of these sizes, the last as long as what is left."""
    pieces, place = [], 0
    for size in sizes:
        pieces.append(text[place : place + size])
        place += size
    return pieces


def luhn(digits: str) -> str:
    """The Luhn digit of `digits`."""
    from stdnum import luhn

    return str(luhn.calc_check_digit(digits))


def iban(value: str, draw: Draw) -> str:
    """An account of the country ZZ, which there is none of, as long as the real one and with letters where it has
    letters; 1 modulo 97."""
    from stdnum.iso7064 import mod_97_10

    body = "".join(draw.letters(1) if c.isalpha() else draw.digits(1) for c in value[4:])
    return f"ZZ{mod_97_10.calc_check_digits(body + 'ZZ')}{body}"


# --- telephones: ranges that regulators keep free for fiction, by country code. `#` is a digit.
_FICTION: Final = {
    1: ("+1-[]-555-01##",),
    44: ("+44 20 7946 0###", "+44 1632 960###", "+44 7700 900###"),  # Ofcom
    49: ("+49 30 23125###", "+49 69 90009###", "+49 40 66969###", "+49 221 4710###", "+49 89 99998###"),  # BNetzA
    33: ("+33 1 99 00 ## ##", "+33 2 61 91 ## ##", "+33 3 53 01 ## ##", "+33 4 65 71 ## ##", "+33 5 36 49 ## ##",
         "+33 6 39 98 ## ##"),  # ARCEP
    61: ("+61 2 5550 ####", "+61 3 5550 ####", "+61 7 5550 ####", "+61 8 5550 ####"),  # ACMA
    353: ("+353 20 91# ####",),  # ComReg
    46: ("+46 31 390 06 ##", "+46 40 628 04 ##", "+46 8 465 004 ##"),  # PTS
}  # fmt: skip
_AREA: Final = "[2-9][0-8][0-9]"


def phone(country: int, draw: Draw) -> str:
    """A number that its country keeps for fiction; of a country that keeps none, one of the +1 555-01xx."""
    forms = _FICTION.get(country, _FICTION[1])
    made = forms[draw.below(len(forms))]
    made = made.replace("[]", f"{2 + draw.below(8)}{draw.below(9)}{draw.below(10)}")
    return "".join(draw.digits(1) if c == "#" else c for c in made)


def own_phones() -> bytes:
    """The pattern of every number that `phone` makes."""
    forms = (form.replace("+", r"\+").replace("[]", _AREA) for row in _FICTION.values() for form in row)
    return "|".join(form.replace("#", "[0-9]") for form in forms).encode()


# --- national numbers
def _checked(body: str, weights: tuple[int, ...], last: int) -> str:
    """`body` and the digit that makes the weighted sum 0 modulo 11 (`last`: its own weight); where no digit does, the
    body counts on."""
    for number in range(int(body), int(body) + 10):
        total = sum(int(digit) * weight for digit, weight in zip(str(number), weights, strict=True))
        for check in range(10):
            if (total + last * check) % 11 == 0:
                return f"{number}{check}"
    raise AssertionError(f"{body}: of ten numbers in a row at most one has no check digit")


def _cpf(value: str, draw: Draw) -> str:
    from stdnum.br import cpf

    body = draw.digits(9)
    tail = draw.below(99)
    check = f"{tail + cpf.is_valid(f'{body}{tail:02d}'):02d}"
    return f"{body[:3]}.{body[3:6]}.{body[6:]}-{check}"


def _sin(value: str, draw: Draw) -> str:
    body = "0" + draw.digits(7)
    return "-".join(cut(body + luhn(body), (3, 3, 3)))


def _idnr(value: str, draw: Draw) -> str:
    from stdnum.iso7064 import mod_11_10

    pool, body = list("123456789"), ["0"]
    chosen = [pool.pop(draw.below(len(pool))) for _ in range(8)]
    chosen.append(chosen[0])
    while chosen:
        body.append(chosen.pop(draw.below(len(chosen))))
    digits = "".join(body)
    return " ".join(cut(digits + mod_11_10.calc_check_digit(digits), (2, 3, 3, 3)))


def _dni(value: str, draw: Draw) -> str:
    # Of all letters, I, O and U are never control letters.
    if value[0] in "XYZ":
        return value[0] + draw.digits(7) + draw.letters(1, "IOU")
    return draw.digits(8) + draw.letters(1, "IOU")


def _nir(value: str, draw: Draw) -> str:
    from stdnum.fr import nir

    year, month, _ = draw.date()
    body = f"{1 + draw.below(2)}{year:02d}{month:02d}00{draw.digits(6)}"
    return " ".join(cut(body + nir.calc_check_digits(body), (1, 2, 2, 2, 3, 3, 2)))


def _nhs(value: str, draw: Draw) -> str:
    made = _checked(f"999{draw.below(10**6 - 10):06d}", (10, 9, 8, 7, 6, 5, 4, 3, 2), 1)
    return " ".join(cut(made, (3, 3, 4)))


def _nino(value: str, draw: Draw) -> str:
    return " ".join(["QQ", *(draw.digits(2) for _ in range(3)), draw.letters(1, "ABCD")])


def _aadhaar(value: str, draw: Draw) -> str:
    from stdnum import verhoeff

    body = "0" + draw.digits(10)
    return " ".join(cut(body + verhoeff.calc_check_digit(body), (4, 4, 4)))


def _code(value: str, draw: Draw) -> str:
    from stdnum.it import codicefiscale

    year, month, day = draw.date()
    name = draw.letters(6, "BCDFGLMNPRST")
    body = f"{name}{year:02d}{'ABCDEHLMPRST'[month - 1]}{day + 40 * draw.below(2):02d}Z0{draw.digits(2)}"
    return body + codicefiscale.calc_check_digit(body)


def _bsn(value: str, draw: Draw) -> str:
    return _checked(f"999{draw.below(10**5 - 10):05d}", (9, 8, 7, 6, 5, 4, 3, 2), -1)


def _pesel(value: str, draw: Draw) -> str:
    from stdnum.pl import pesel

    year, month, day = draw.date()
    body = f"{year:02d}{month + 80}{day:02d}{draw.digits(4)}"
    return body + pesel.calc_check_digit(body)


def _pnr(value: str, draw: Draw) -> str:
    year, month, day = draw.date()
    body = f"{year:02d}{month:02d}{day:02d}{draw.digits(3)}"
    return f"18{body[:6]}-{body[6:]}{luhn(body)}"


NATIONAL: Final[dict[Kind, Callable[[str, Draw], str]]] = {
    "br_cpf": _cpf, "ca_sin": _sin, "de_idnr": _idnr, "es_dni": _dni, "fr_nir": _nir, "gb_nhs": _nhs, "gb_nino": _nino,
    "in_aadhaar": _aadhaar, "it_cf": _code, "nl_bsn": _bsn, "pl_pesel": _pesel, "se_pnr": _pnr,
}  # fmt: skip
