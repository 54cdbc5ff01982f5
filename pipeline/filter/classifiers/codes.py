"""Language labels of models as ISO 639-1 codes: lid.176 says `en`, GlotLID `eng_Latn`, NLLB's model `zho_Hans`."""

from __future__ import annotations

import re
from typing import Final

# ISO 639-3 (part 2/T where there are two) to ISO 639-1.
_THREE = """
aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba bam:bm bel:be
ben:bn bih:bh bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu chv:cv cor:kw cos:co
cre:cr cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fas:fa fij:fj
fil:tl fin:fi fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv grn:gn guj:gu hat:ht hau:ha hbs:sh heb:he her:hz
hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig ido:io iii:ii iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it
jav:jv jpn:ja kal:kl kan:kn kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko
kua:kj kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk
mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb
nor:no nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa pli:pi pol:pl por:pt pus:ps que:qu roh:rm ron:ro
run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq
srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv tah:ty tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn
tso:ts tuk:tk tur:tr twi:tw uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi
yor:yo zha:za zho:zh zul:zu
"""

# Individual languages that stand for their macrolanguage in most data (as in Unicode CLDR's aliases).
_INDIVIDUAL = """
als:sq arb:ar ayr:ay azj:az cmn:zh cwd:cr ekk:et esk:ik fat:ak fuc:ff gaz:om gug:gn ike:iu khk:mn kmr:ku
knc:kr kng:kg kpv:kv lvs:lv npi:ne ojg:oj ory:or pbu:ps pes:fa plt:mg quz:qu src:sc swh:sw uzn:uz ydd:yi
zsm:ms zyb:za
"""

ISO_639_1: Final = dict(pair.split(":") for pair in (_THREE + _INDIVIDUAL).split())
_SCRIPT = re.compile(r"([a-z]{2,3})[_-][A-Z][a-z]{3}")


def iso_639_1(label: str) -> str:
    """The two-letter code of a label with a script; its three-letter code where there is none.

    A label without a script stays as it is: it is one already, or not of ISO 639 (`als` of lid.176 is Alemannic
    as Wikipedia calls it, in ISO 639-3 it is Tosk Albanian).
    """
    found = _SCRIPT.fullmatch(label)
    return ISO_639_1.get(found[1], found[1]) if found else label
