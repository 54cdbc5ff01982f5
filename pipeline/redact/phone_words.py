"""Words about telephones by language: what labels a number, what merely speaks of telephones, and whose plans are then tried.

One line a language: words that label a number, words that speak of telephones near one, words before an extension, and regions
(ISO 3166) in the order in which their plans are tried. A word may stand in several languages. `*` before it: also inside a longer
word (`Diensttelefon`). Words are written in small letters; other cases are made here. None has fewer than three bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Words(NamedTuple):
    """What a language says about telephones."""

    labels: tuple[str, ...]
    near: tuple[str, ...]
    extensions: tuple[str, ...]
    regions: tuple[str, ...]


_TABLE = """
en | *phone tel fax *facsimile *mobile cell *cellphone *whatsapp wapp *hotline helpline landline voicemail pager tollfree toll-free ph. ph: mob direct | call *contact sms text dial reach ring | ext extn extension x | US GB CA AU IN IE NZ ZA SG
es | tel telf teléf telef *teléfono *telefono *teléfonos tfno tfn tfo tlf tlfno tlfn *móvil *movil *celular cel fax centralita wasap guasap wsp | llamar llame llamen llamad llamadme llamadnos llamarnos llámenos llamenos llámenme llámanos llamanos llamarme llámame llamame contactar contacto *información *informacion informes | ext extensión extension int interno anexo | ES MX AR CO CL PE VE EC UY CR GT BO PY DO PA HN SV NI CU
ca | tel telf *telèfon *telefon mòbil fax | contacte | ext extensió | ES AD
gl | tel *teléfono móbil fax | contacto | ext | ES
pt | tel telef *telefone telm *telemóvel *telemovel *celular cel fone tlm fax zap whats wpp | contato contacto ligar ligue ligue-me ligar-me chama chame contatos *informações | ramal ext extensão | BR PT AO MZ
fr | tél tel *téléphone *telephone portable mobile fax gsm *télécopie télécopieur | appeler appelez appelez-moi appelle-moi appelez-nous rappeler joindre joignez joignez-nous joignable contacter contactez renseignements | poste ext int | FR BE CH CA LU MA DZ TN SN CI
de | tel *telefon *handy *mobil mobilnummer *rufnummer *festnetz fax *telefax *fernruf fon durchwahl hotline | anrufen anruf erreichbar erreichen ruf rufen melden *kontakt auskunft | durchwahl dw nebenstelle nst apparat | DE AT CH LU LI
it | tel *telefono *cellulare cell cel fax *recapito | chiamare chiamate chiamatemi chiamami chiami contattare contattateci contattatemi *contatti chiama informazioni | int interno | IT CH SM
nl | tel *telefoon *mobiel gsm fax mob | bellen contact bereikbaar | toestel tst | NL BE SR
pl | tel *telefon *komórk kom fax faks infolinia | kontakt zadzwoń | wew wewn wewnętrzny | PL
cs | tel *telefon *mobil fax | kontakt volejte | linka klapka | CZ SK
sk | tel telefón *telefon *mobil fax | kontakt volajte | klapka linka | SK CZ
sv | tel tfn tlf *telefon *mobil fax växel | kontakt ring | ankn anknytning | SE FI
da | tel tlf *telefon *mobil fax | kontakt ring | lokal | DK
no | tel tlf *telefon *mobil faks | kontakt ring | linje | NO
fi | puh *puhelin *matkapuhelin gsm faksi tel | soita | alanumero | FI
ro | tel *telefon mobil fax gsm | contact sunați | int interior | RO MD
hu | tel *telefon *mobil fax | hívja elérhetőség | mellék | HU
hr | tel *telefon *mobitel mob fax faks | kontakt nazovite | lok kućni | HR BA RS ME SI
tr | tel *telefon gsm cep faks fax | arayın iletişim | dahili | TR
vi | đt sđt tel *thoại *động fax hotline | *liên | lẻ | VN
id | tel telp *telepon *ponsel fax faks | hubungi kontak | ext pes | ID MY
el | τηλ *τηλέφωνο *τηλεφωνο κιν *κινητό φαξ fax | επικοινωνία καλέστε | εσωτ εσωτερικό | GR CY
ru | тел *телефон моб *мобильный сот факс | звоните *контакт звонить справки | доб | RU BY KZ UA KG UZ
uk | тел *телефон моб *мобільний факс | дзвоніть контакт | дод внутр | UA
bg | тел *телефон моб *мобилен *gsm факс | контакт | вътр | BG
sr | тел *телефон моб *мобилни факс | контакт | лок | RS BA ME
ar | *هاتف *تليفون *تلفون *جوال *موبايل *محمول *فاكس *نقال | اتصل *الاتصال | تحويلة | EG SA AE MA DZ TN IQ JO KW QA LB SD LY OM BH YE PS SY
fa | *تلفن *همراه *موبایل *نمابر *فکس | *تماس | داخلی | IR AF
ur | *فون *موبائل *فیکس | *رابطہ | | PK
he | *טלפון טל *נייד *פקס | *התקשר | שלוחה | IL
hi | *फ़ोन *फोन *मोबाइल *दूरभाष *टेलीफोन *टेलीफ़ोन *फैक्स *फ़ैक्स | *संपर्क *सम्पर्क *कॉल | एक्सटेंशन | IN NP
bn | *ফোন *মোবাইল *ফ্যাক্স | *যোগাযোগ | | BD IN
th | *โทร *มือถือ *แฟกซ์ *โทรสาร | *ติดต่อ | ต่อ | TH
zh | *电话 *電話 *手机 *手機 *传真 *傳真 *座机 *热线 *熱線 | *联系 *聯繫 *致电 *拨打 | 转 轉 分机 分機 | CN TW HK SG MO
ja | *電話 *携帯 *ファックス *ファクス *フリーダイヤル ℡ | *連絡 *お問い合わせ | 内線 | JP
ko | *전화 *휴대폰 *핸드폰 *팩스 *연락처 | *문의 | 내선 | KR
"""
LETTERS = b"tmfpc"  # that stand for a word: telephone, mobile, fax, phone, cell
SIGNS = ("☎", "📞", "✆", "📱", "📠")
# What may stand between a label and its number, besides punctuation.
_QUALIFIERS = """
no nos nr num núm numb number numbers nº n° № nro nummer numero número números numéro is are are: es ist est e is: was of me us him her them
at on my your our work home office mobile private business personal direct main day evening daytime emergency fax tel phone switchboard
de del la el y casa trabajo contacto oficina particular directo urgencias consulta fijo contact du bureau domicile et ou und oder privat
geschäftlich dienstlich zentrale mobil ufficio casa celular do da residencial comercial kom domowy praca или и для
справок раб дом мобильный مكتب رقم नंबर नम्बर 号码 號碼 號 号 是 は 번호 เบอร์ số nomor or and 1 2 3 i ii
"""
# Scripts in which a number without a word about telephones is still tried by the plans of its readers.
SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0xCE, 0xCF, "el"), (0xD0, 0xD3, "ru"), (0xD6, 0xD7, "he"), (0xD8, 0xDB, "ar"), (0xE3, 0xE3, "ja"), (0xE4, 0xE9, "zh"),
    (0xEA, 0xED, "ko"),
)  # fmt: skip


def _read() -> dict[str, Words]:
    table: dict[str, Words] = {}
    for line in _TABLE.strip().splitlines():
        name, *columns = (part.strip() for part in line.split("|"))
        table[name] = Words(*(tuple(column.split()) for column in columns))
    return table


LANGUAGES: dict[str, Words] = _read()


@lru_cache(maxsize=256)
def regions_of_language(code: str) -> tuple[str, ...]:
    """The regions whose plans are tried in a text of the language (ISO 639-1, also with a suffix, as `zh-Hant`)."""
    words = LANGUAGES.get(code.lower().replace("_", "-").partition("-")[0])
    return words.regions if words else ()


def regions_of_script(data: bytes) -> tuple[str, ...]:
    """The regions of the last letter in `data` that is of a script of few languages; () where there is none."""
    for byte in reversed(data):
        if byte < 0xCE:
            continue
        for low, high, language in SCRIPTS:
            if low <= byte <= high:
                more = LANGUAGES["ja"].regions if language == "zh" else ()
                return LANGUAGES[language].regions + more
        if byte != 0xE2:  # punctuation
            return ()
    return ()


def spellings(word: str) -> tuple[bytes, ...]:
    """The word in small letters; one of another alphabet also in capitals and with a first capital, since context is folded in
    ASCII alone."""
    return tuple(
        dict.fromkeys(bytes(form.encode()).lower() for form in (word, word.capitalize(), word.upper()))
    )


def _parts(words: Iterable[str]) -> Iterable[tuple[bytes, bool]]:
    for word in words:
        for form in spellings(word.removeprefix("*")):
            yield form, word.startswith("*")


def trie(words: Iterable[bytes]) -> bytes:
    """A pattern of the words, longest first, that shares what they begin with: the match costs no more with more words."""
    root: dict[int, dict[int, object]] = {}
    for word in words:
        node: dict[int, object] = root  # type: ignore[assignment]
        for byte in word:
            node = node.setdefault(byte, {})  # type: ignore[assignment]
        node[-1] = {}
    return _written(root)  # type: ignore[arg-type]


def _written(node: dict[int, object]) -> bytes:
    branches = [
        re.escape(bytes([byte])) + _written(node[byte])  # type: ignore[arg-type]
        for byte in sorted(node)
        if byte >= 0
    ]
    if not branches:
        return b""
    if len(branches) == 1 and -1 not in node:
        return branches[0]
    return b"(?:" + b"|".join(branches) + b")" + (b"?" if -1 in node else b"")


class Word(NamedTuple):
    """A word about telephones in a text."""

    word: bytes
    end: int
    labels: bool  # a number


def words_in(text: bytes) -> list[Word]:
    """The words about telephones in `text`, whose ASCII letters are small. Those without `*` count only where no letter
    touches them."""
    found = []
    for match in _FINDER.finditer(text):
        start, end = match.span()
        label, within = _FORMS[match.group()]
        if within or (
            (start == 0 or not (97 <= text[start - 1] <= 122 or text[start - 1] >= 128))
            and (end == len(text) or not 97 <= text[end] <= 122)
        ):
            found.append(Word(match.group(), end, label))
    return found


def _forms() -> dict[bytes, tuple[bool, bool]]:
    """Form of a word -> whether it labels a number, and whether it counts within a longer word."""
    table: dict[bytes, tuple[bool, bool]] = {}
    for words in LANGUAGES.values():
        for column, label in ((words.labels, True), (words.near, False)):
            for form, within in _parts(column):
                old = table.get(form, (False, False))
                table[form] = (old[0] or label, old[1] or within)
    return table | {sign.encode(): (True, True) for sign in SIGNS}


def qualifiers() -> bytes:
    """The pattern of what may stand between a label and its number."""
    return trie({form for word in _QUALIFIERS.split() for form in spellings(word)})


def extensions() -> bytes:
    """The pattern of all words before an extension."""
    return trie(
        {form for words in LANGUAGES.values() for word in words.extensions for form in spellings(word)}
    )


@lru_cache(maxsize=512)
def regions_of_word(word: bytes) -> tuple[str, ...]:
    """The regions of the languages of a word; () for one of so many languages that it says nothing."""
    found = [
        words.regions
        for words in LANGUAGES.values()
        if any(
            form in word if within else form == word for form, within in _parts((*words.labels, *words.near))
        )
    ]
    if len(found) > 14:
        return ()
    return tuple(dict.fromkeys(region for regions in found for region in regions))


_FORMS = _forms()
_FINDER = re.compile(trie(_FORMS))
