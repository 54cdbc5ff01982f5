"""What each detector finds, and above all what it leaves alone."""

from __future__ import annotations

import pytest

from corpusmill.pipeline.redact import Kind
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.pipeline.redact.identity_numbers import iban_length, is_card
from corpusmill.pipeline.redact.secrets import entropy, looks_random
from corpusmill.schemas.stages import DEFAULT_KINDS

KINDS: list[Kind] = ["email", "phone", "ip", "card", "iban", "ssn", "secret"]
ALL = list(DEFAULT_KINDS)
AWS, SLACK = (
    "AKIA" + "IOSFODNN7QXAMPLE",
    "xoxb-" + "123456789012-abcdefABCDEF",
)  # in two parts: no scanner's alarm
GITHUB, GOOGLE = (
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6q",
)
NEW = [
    "sk-" + "ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7", "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeF12", "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "SG." + "a1B2c3D4e5F6g7H8i9J0k1." + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V",
    "sk_" + "live_a1B2c3D4e5F6g7H8", "dop_v1_" + "0123456789abcdef" * 4, "SK" + "0123456789abcdef" * 2, "ya29." + "a0AfH6SMBx1b2c3d4e5f6",
    "shpat_" + "0123456789abcdef" * 2, "GOCSPX-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4",
]  # fmt: skip
CUT_PEM = "-----BEGIN PRIVATE " + "KEY-----\n" + "MIIEpAIBAAKCAQEA7bq1Ab9zMIIEpAIBAAKCAQEA7bq1Ab9z\n" * 3
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEpAIBAAKCAQEA7bq1\nAb+/9z==\n-----END RSA PRIVATE KEY-----"


def found(
    text: str, kinds: list[Kind] = KINDS, regions: tuple[str, ...] = ("US", "GB")
) -> list[tuple[str, str]]:
    data = text.encode() + b"\x00"
    return [(hit.kind, data[hit.start : hit.end].decode()) for hit in find(data, Look(kinds, regions))]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("mail ann.lee@mail.example.org now", "email", "ann.lee@mail.example.org"),
        ("<a href='mailto:ann+x@site.co.uk'>", "email", "ann+x@site.co.uk"),
        ("to=bob@site.org&x", "email", "bob@site.org"),
        ("邮箱是foo@bar.com，再见", "email", "foo@bar.com"),
        ("josé.núñez@correo.es!", "email", "josé.núñez@correo.es"),
        ("hans@bücher.de", "email", "hans@bücher.de"),
        ("write to ann@site.org.Next sentence", "email", "ann@site.org"),
        ("(ann_b@x-y.site.museum)", "email", "ann_b@x-y.site.museum"),
        ("+44 20 7946 0958", "phone", "+44 20 7946 0958"),
        ("call (212) 555-0123.", "phone", "(212) 555-0123"),
        ("001-581-896-0013x3906", "phone", "001-581-896-0013x3906"),
        ("at +1-212-456-7890 ext. 12", "phone", "+1-212-456-7890 ext. 12"),
        ("650-253-0000", "phone", "650-253-0000"),
        ("650.253.0000", "phone", "650.253.0000"),
        ("+49\u00a030\u00a0901820", "phone", "+49\u00a030\u00a0901820"),
        ("212\u2011736\u20113100", "phone", "212\u2011736\u20113100"),
        ("020 7946 0958", "phone", "020 7946 0958"),
        ("phone: 2125550123", "phone", "2125550123"),
        ("Phone: 467 3395", "phone", "467 3395"),
        ("8.8.8.8", "ip", "8.8.8.8"),
        ("resolver 8.8.4.4.", "ip", "8.8.4.4"),
        ("http://93.184.216.34/x", "ip", "93.184.216.34"),
        ("from 93.184.216.34:8080", "ip", "93.184.216.34"),
        ("我的IP是93.184.216.34，", "ip", "93.184.216.34"),
        ("host 12.13.14.15", "ip", "12.13.14.15"),
        ("2606:4700:4700::1111", "ip", "2606:4700:4700::1111"),
        ("[2a00:1450:4001:0831:0000:0000:0000:200e]:443", "ip", "2a00:1450:4001:0831:0000:0000:0000:200e"),
        ("4111 1111 1111 1111 12/25", "card", "4111 1111 1111 1111"),
        ("4111111111111111", "card", "4111111111111111"),
        ("5555-5555-5555-4444", "card", "5555-5555-5555-4444"),
        ("378282246310005", "card", "378282246310005"),
        ("3782 822463 10005", "card", "3782 822463 10005"),
        ("my card 30569309025904", "card", "30569309025904"),
        ("GB82 WEST 1234 5698 7654 32 is mine", "iban", "GB82 WEST 1234 5698 7654 32"),
        ("DE89370400440532013000", "iban", "DE89370400440532013000"),
        ("gb82west12345698765432", "iban", "gb82west12345698765432"),
        ("123-45-6789", "ssn", "123-45-6789"),
        ("SSN 123456789", "ssn", "123456789"),
        ("social security: 123 45 6789", "ssn", "123 45 6789"),
        (f"key {AWS}", "secret", AWS),
        (f"token={GITHUB}", "secret", GITHUB),
        (SLACK, "secret", SLACK),
        (f'"{GOOGLE}"', "secret", GOOGLE),
        (f"Bearer {JWT}", "secret", JWT),
        (f"x\n{PEM}\ny", "secret", PEM),
        ("api_key = 'sk9fA83jdPq0xZ71LmNb'", "secret", "sk9fA83jdPq0xZ71LmNb"),
        ("client_secret: 9f86d081884c7d659a2feaa0c55ad015", "secret", "9f86d081884c7d659a2feaa0c55ad015"),
    ],
)
def test_found(text: str, kind: str, value: str) -> None:
    assert found(text) == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        # What other tools rewrite (a survey of theirs is where these come from)
        "OID 1.3.6.1.4.1.311", "section 8.8.4.4.1", "999.8.8.8.8", "v2.33.44.556", "ISBN 9780306406157",
        "ISBN 978-0-306-40615-7", "1234567890123456789012345678901234567890",
        # addresses and versions
        "section 8.8.4.4", "v8.8.8.8", "version 93.184.216.34", "lib-93.184.216.34.tar.gz", "base >= 93.184.216.34",
        "3.8.4.3", "13.2.5.80", "the server.\n\n27.2.5.2 Settings", "5.2.1.4 Heading", "192.168.1.1 10.0.0.1 127.0.0.1 203.0.113.9", "256.300.1.1", "08.08.08.08",
        "fe80::1 ::1 2001:db8::1", "a[1::2] x[2000::2]", "std::vector<2abc::def>", "12:30:45", "2016-01-01T12:30:45",
        # numbers
        "ISBN 0-306-40615-2", "2014-03-05 12:30:45", "2014-03-05", "05.03.2014", "1914-1918", "3.14159265358979",
        "0.4111111111111111", "1,234,567,890", "100000000 200000000 300000000", "#define X 1234567890", "x = 2125550123;",
        "pages 100-200", "1.800.5", "0x12345678901", "1e1234567890", "606.345 (2024)", "viewBox=\"0 0 627.302 147.96\"",
        "-123.456789012", "1 234 567 890", "timestamp 1700000000", "/2014/03/05/1234567/", "id=2125550123",
        "4111111111111112", "1234 5678 9012 3456", "9111 1111 1111 1111", "41111111111111111111111",
        "4111.1111.1111.1111", "2.4111111111111111", "order 30569309025904", "650 253 0000 650 253 0000 650 253",
        "000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "1123-45-6789", "123-45-67890", "123 45 6789",
        "123456789", "GB82 WEST 1234 5698 7654 33", "XGB82WEST12345698765432", "QQ82WEST12345698765432",
        # over two lines
        "call (212)\n736-3100", "+44 20 7946\n0958", "4111 1111\n1111 1111", "SSN 123-45-\n6789", "93.184.\n216.34",
        "GB82 WEST 1234\n5698 7654 32", "ann@\nsite.org",
        # addresses that are none
        "logo@2x.png", "@app.route", "user@localhost", "a@b", "@", "x@.com", "me @ site.org", "git@",
        # secrets that are none
        "api_key = os.environ['API_KEY_FOR_THIS']", "password: correct-horse-battery", "token = tokenizer.tokenize_all(x)",
        "api_key = YOUR_API_KEY_HERE_1234", "secret: example1234567890abcdef", "XAKIAIOSFODNN7QXAMPLE",
        "-----BEGIN PUBLIC KEY-----\nMIIEpAIBAAKCAQEA7bq1\n-----END PUBLIC KEY-----",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    assert found(text) == []


def test_regions_decide_on_national_numbers() -> None:
    assert found("030 901820 00", regions=("US",)) == []
    assert found("030 901820 00", regions=("DE",)) == [("phone", "030 901820 00")]
    assert found("+49 30 901820", regions=()) == [("phone", "+49 30 901820")]


def test_overlaps_go_to_the_earliest_then_the_longest_then_the_first_named() -> None:
    # The IBAN holds digits that read as telephone, and starts first.
    assert found("GB82 WEST 1234 5698 7654 32") == [("iban", "GB82 WEST 1234 5698 7654 32")]
    text = "social security 123456789"
    assert found(text, ["ssn", "phone"]) == [("ssn", "123456789")]
    both = "SSN, phone: 123456789"
    assert found(both, ["ssn", "phone"]) == [("ssn", "123456789")]
    assert found(both, ["phone", "ssn"]) == [("phone", "123456789")]


@pytest.mark.parametrize(
    ("kind", "number"),
    [("phone", "2125551234"), ("ip", "12.13.14.15"), ("mac", "11:22:33:44:55:66"), ("card", "30569309025904"),
     ("ssn", "123456789"), ("pl_pesel", "44051401359")],
)  # fmt: skip
def test_a_tag_is_no_word_that_says_what_a_number_is(kind: Kind, number: str) -> None:
    tag = f"<{kind.upper()}>"
    for between in (", ", " "):
        assert found(f"{tag}{between}{number}", ALL) == []
    assert found(f"<p>{tag}{number}</{tag[1:]}", ALL) == [(kind, number)]  # an element that holds it


def test_several_numbers_in_one_run() -> None:
    assert found("(212) 736-3100 (646) 736-3101") == [
        ("phone", "(212) 736-3100"),
        ("phone", "(646) 736-3101"),
    ]
    assert found("650-253-0000 123-45-6789 4111111111111111") == [
        ("phone", "650-253-0000"), ("ssn", "123-45-6789"), ("card", "4111111111111111")
    ]  # fmt: skip


def test_nothing_reaches_over_a_documents_end() -> None:
    data = b"call 212\x00555-0123\x00ann\x00@site.org\x00ssn\x00123456789\x00"
    assert find(data, Look(KINDS, ("US",))) == []


def test_validators() -> None:
    assert is_card("4111111111111111") and not is_card("4111111111111112") and not is_card("9" * 16)
    assert (iban_length("GB"), iban_length("NO"), iban_length("QQ")) == (22, 15, 0)
    assert entropy(b"aaaa") == 0 and entropy(b"abcd") == 2
    assert looks_random(b"sk9fA83jdPq0xZ71LmNb") and not looks_random(b"aaaa1111bbbb2222")


def test_long_lines_take_linear_time() -> None:
    # Each would take hours where a detector tries every start against every end.
    for text in (
        "1" * 400_000,
        "1 " * 200_000,
        "a" * 400_000 + "@",
        "@a." * 150_000,
        "-----BEGIN PRIVATE " + "KEY-----\n" * 9_000,
        "1-2 " * 100_000,
        "a:" * 200_000,
        "http://a" * 50_000,
        "&key=" * 80_000,
        "api_key=" + "a1" * 200_000,
        "ab-" * 130_000,
        "gb82 " * 80_000,
        "12:" * 130_000,
        "0x" + "1" * 400_000,
    ):
        assert len(found(text, ALL)) <= 1


@pytest.mark.parametrize("key", NEW)
def test_keys_of_issuers_are_found_whole_and_only_at_the_start_of_a_word(key: str) -> None:
    assert found(f"use {key} here", ALL) == [("secret", key)]
    assert found(f'{{"k": "{key}"}}', ALL) == [("secret", key)]
    assert ("secret", key) not in found(f"x{key}", ALL)


def test_a_private_key_that_the_text_cuts_short() -> None:
    assert found(f"x {CUT_PEM}", ALL) == [("secret", CUT_PEM.rstrip())]
    assert found("-----BEGIN PRIVATE " + "KEY-----\nshort\n", ALL) == []


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("eth0 00:1A:2b:3c:4d:5e up", "mac", "00:1A:2b:3c:4d:5e"), ("00-1A-2B-3C-4D-5E", "mac", "00-1A-2B-3C-4D-5E"),
        ("001a.2b3c.4d5e", "mac", "001a.2b3c.4d5e"), ("aabb.ccdd.1234,", "mac", "aabb.ccdd.1234"),
        ("MAC 11:22:33:44:55:66", "mac", "11:22:33:44:55:66"),
        ("https://ann:hunter2@site.org/x", "url_credential", "ann:hunter2"),
        ("postgres://u:p4ss@10.0.0.1:5432/db", "url_credential", "u:p4ss"),
        ("https://site.org/a?x=1&password=hunter2&y=2", "url_credential", "hunter2"),
        ("see https://site.org/?access_token=ab12cd34ef.", "url_credential", "ab12cd34ef"),
        ("www.site.org/?api_key=a1B2c3D4e5F6g7H8&amp;x=1", "url_credential", "a1B2c3D4e5F6g7H8"),
        ("https://x.blob.net/c?sv=2020&sig=a1B2c3D4e5F6g7H8i9J0%3D", "url_credential", "a1B2c3D4e5F6g7H8i9J0%3D"),
        ("Authorization: Bearer a1B2c3D4e5F6g7H8i9J0", "secret", "a1B2c3D4e5F6g7H8i9J0"),
        ("AccountKey=a1B2c3D4e5F6g7H8i9J0k1L2==", "secret", "a1B2c3D4e5F6g7H8i9J0k1L2=="),
        ("01.84.17.61.18 fax", "phone", "01.84.17.61.18"), ("call me on 01.84.17.61.18?", "phone", "01.84.17.61.18"),
        ("416 60 039 office\n", "phone", "416 60 039"), ("(37) 788-063-Office, x", "phone", "(37) 788-063"),
        ("they are not answering at 78 651 450", "phone", "78 651 450"),
    ],
)  # fmt: skip
def test_new_kinds_are_found(text: str, kind: str, value: str) -> None:
    assert found(text, ALL) == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        # hardware
        "12:30:45:10:20:30", "12-30-45-10-20-30", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "x00:1a:2b:3c:4d:5e",
        "00:1a:2b:3c:4d:5e:6f", "aa:00:1a:2b:3c:4d:5e", "00:1a:2b-3c:4d:5e", "dead.beef.cafe.0001", "1234.5678.9012",
        "SHA256 fingerprint aa:bb:cc:dd:ee:01:02:03",
        # URLs
        "https://user:password@host", "https://site.org/a:b@c", "https://ann@site/", "http://[::1]:80/", "mailto:a:b@c",
        "https://{user}:{token}@host/", "https://site.org/?key=value", "https://site.org/?token=name", "?password=hunter2",
        "https://site.org/?id=a1B2c3D4e5F6g7H8&page=3", "https://books.org/?id=x&sig=a1B2c3D4e5F6g7H8i9J0",
        "https://site.org/?password=your_password", "std::password=a1",
        # not quite keys
        "sk-skeleton-loading-animation-wide", "sk-123", "hf_hub_download", "SG.short.x", "npm_config_registry", "pypi-simple",
        # telephones that are none
        "Room 200 300 office hours", "in 2000 2010 phones were sold", "1200 500 workers", "1.2.3.4.5.6.7 fax", "it answers at 192.168.1.17 now", "phone 10.120.130.140", "99.5 98.6 home",
    ],
)  # fmt: skip
def test_new_kinds_leave_alone(text: str) -> None:
    assert found(text, ALL) == []
