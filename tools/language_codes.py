"""Labels of languages, from the names that translators give their files (`pt_BR`, `sr@latin`, `kmr-latn`, `roa-rup`).

Policy. ISO 639-1 where a language has such a code, else ISO 639-3, as the labels of lid.176 and of GlotLID as this project
shows them. An individual language that stands for its macrolanguage takes that one's code (`arb` ar, `zsm` ms, `pes` fa,
`plt` mg, `kmr` ku). Scripts and regions are no labels: Chinese in either script is `zh`, Serbian `sr`. Bokmål is `no`, as in
lid.176, Nynorsk `nn`. Bosnian, Croatian and Serbian are three labels (`bs`, `hr`, `sr`), Malay and Indonesian two (`ms`,
`id`); Dari is `fa`, Filipino `tl`, spoken varieties of Arabic `ar`, Moldovan `ro`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from corpusmill.pipeline.filter.classifiers.scores import ISO_639_1

_OTHER_TEXT: Final = """
iw:he in:id ji:yi jw:jv mo:ro nb:no nob:no nno:nn fil:tl sh:- simple:- als:gsw bh:bho bih:bho zh-classical:- lzh:- roa-rup:rup
roa-tara:- fiu-vro:vro bat-smg:sgs map-bms:- cbk-zam:cbk be-tarask:be be-x-old:be be_x_old:be kmr:ku prs:fa arz:- ary:- aeb:- apc:- arq:- acm:-
ajp:- shu:- fat:ak tw:ak twi:ak qqq:- qqx:- ku_IQ:ckb ku-iq:ckb sr_CS:- zh-min-nan:nan no-bok:no nyn:nyn kok:gom knn:gom ary-arab:- hif:hif zlm:ms
gug:gn gun:gn quz:qu quh:qu quy:qu qug:qu qxa:qu que:qu ayc:ay ayr:ay nhn:nah nci:nah nch:nah ncj:nah nhe:nah azz:nah tzl:- tlh:- jbo:- tok:- ang:- got:- grc:-
chu:- cu:- pi:- en_shaw:- io:io ie:ie vo:- nov:- avk:- lfn:- qya:- sjn:- dlm:- aae:sq aln:sq als_latn:sq hbs:- bos:bs hrv:hr srp:sr hmn:hmn mww:hmn
hnj:hmn blu:hmn hea:- fuf:ff fuv:ff fub:ff fuc:ff ffm:ff ckt:- mnw:mnw ltg:ltg lvs:lv ekk:et uzn:uz azj:az azb:azb khk:mn mvf:- cmn:zh hak:- gan:- cdo:- nan:nan
hsn:- wuu:wuu yue:yue cjy:- cpx:- mnp:- czh:- czo:- cnp:- csp:- npi:ne ory:or pbu:ps pbt:ps pst:ps pes:fa plt:mg
kng:kg swh:sw ydd:yi zsm:ms knc:kr gaz:om kpv:kv koi:koi src:sc sro:sc sdn:sc sdc:sc bcc:bal bgn:bal bgp:bal zul:zu fit:fit ike:iu ikt:iu
en-simple:- de-formal:de nl-informal:nl es-formal:es hu-formal:hu de-at:de de-ch:de kk-cn:kk kk-kz:kk kk-tr:kk zh-my:zh zh-sg:zh
"""
# Names that are not of ISO 639, old codes, and varieties that take another label.
_OTHER: Final = dict(pair.split(":") for pair in _OTHER_TEXT.split())

_SCRIPTS_TEXT: Final = """
ar:Arabic fa:Arabic ur:Arabic ps:Arabic sd:Arabic ug:Arabic ckb:Arabic azb:Arabic glk:Arabic mzn:Arabic lrc:Arabic pnb:Arabic skr:Arabic
ru:Cyrillic uk:Cyrillic be:Cyrillic bg:Cyrillic mk:Cyrillic kk:Cyrillic+Arabic ky:Cyrillic tt:Cyrillic ba:Cyrillic cv:Cyrillic
mn:Cyrillic tg:Cyrillic sah:Cyrillic os:Cyrillic ce:Cyrillic av:Cyrillic lez:Cyrillic ab:Cyrillic udm:Cyrillic kv:Cyrillic koi:Cyrillic mhr:Cyrillic mrj:Cyrillic
myv:Cyrillic mdf:Cyrillic xal:Cyrillic bxr:Cyrillic tyv:Cyrillic krc:Cyrillic kum:Cyrillic rue:Cyrillic ady:Cyrillic kbd:Cyrillic inh:Cyrillic lbe:Cyrillic
sr:Cyrillic+Latin uz:Latin+Cyrillic az:Latin+Cyrillic tk:Latin crh:Latin+Cyrillic bs:Latin+Cyrillic ku:Latin zh:Han yue:Han wuu:Han ja:Hiragana+Katakana+Han
ko:Hangul hi:Devanagari mr:Devanagari ne:Devanagari mai:Devanagari bho:Devanagari sa:Devanagari gom:Devanagari+Latin new:Devanagari awa:Devanagari mag:Devanagari hne:Devanagari doi:Devanagari brx:Devanagari
dty:Devanagari bn:Bengali as:Bengali bpy:Bengali mni:Bengali+Meetei pa:Gurmukhi gu:Gujarati or:Oriya ta:Tamil te:Telugu kn:Kannada tcy:Kannada ml:Malayalam
si:Sinhala th:Thai lo:Lao my:Myanmar shn:Myanmar mnw:Myanmar km:Khmer bo:Tibetan dz:Tibetan am:Ethiopic ti:Ethiopic ka:Georgian xmf:Georgian hy:Armenian hyw:Armenian
he:Hebrew yi:Hebrew el:Greek dv:Thaana chr:Cherokee iu:Canadian sat:Ol nqo:Nko ks:Arabic syr:Syriac ii:Yi
"""
# The scripts that texts of a label are written in, where one label has several or data of another would be an error.
SCRIPTS: Final = {
    label: scripts.split("+") for label, scripts in (pair.split(":") for pair in _SCRIPTS_TEXT.split())
}

_PARTS = re.compile(r"[_@.-]")
_SCRIPT_TAGS: Final = {
    "latn", "latin", "cyrl", "cyrillic", "arab", "arabic", "deva", "hans", "hant", "cans", "tfng", "ec", "el", "guru", "beng",
    "olck", "mtei", "ethi", "hebr", "tibt", "mymr", "thaa", "thai", "khmr", "laoo", "geor", "armn", "grek", "hang", "jpan", "telu",
}  # fmt: skip


@lru_cache(maxsize=4096)
def label(name: str) -> str | None:
    """The label for a translator's name of a language; None for a name that is none, or that no label is for.

    `pt_BR.UTF-8`, `ca@valencia`, `zh-hant` and `ku-arab` are understood; English is `en` whatever its region.
    """
    plain = name.split(".")[0].replace("-", "_")
    for form in (plain, plain.lower(), plain.lower().replace("_", "-")):
        if form in _OTHER:
            return None if _OTHER[form] == "-" else _OTHER[form]
    first, *rest = _PARTS.split(plain)
    if not re.fullmatch(r"[a-z]{2,3}", first) or any(len(part) > 10 for part in rest):
        return None
    tags = {part.lower() for part in rest}
    if first == "ku" and tags & {"arab", "arabic", "iq"}:
        return "ckb"
    if first in ("ff", "ful") and "adlm" in tags:
        return None
    if first == "az" and tags & {"ir", "arab"}:
        return "azb"
    found = _OTHER.get(first, ISO_639_1.get(first, first))
    return (
        None
        if found == "-"
        else _OTHER.get(found, found)
        if found in _OTHER and _OTHER[found] != "-"
        else found
    )
