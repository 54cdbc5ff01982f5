"""The signals of the models: language (labels of lid.176, GlotLID and NLLB as ISO 639-1 codes), toxicity and quality, over
Arrow buffers, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.costs import METER
from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.filter.classifiers import language, predictor
from corpusmill.pipeline.filter.classifiers.fasttext_model import ModelFile, plain_label
from corpusmill.pipeline.filter.classifiers.language import Profile
from corpusmill.pipeline.filter.classifiers.model_words import Words, as_it_stands, cleaned
from corpusmill.pipeline.filter.classifiers.pieces import sentences_of, windows_of
from corpusmill.pipeline.filter.classifiers.pooling import (
    MAX_WINDOWS,
    WINDOW_CHARS,
    Form,
    by_sentence,
    pooled,
)
from corpusmill.pipeline.filter.classifiers.predictor import AnyModel, Predictor
from corpusmill.pipeline.filter.quality_signals.model import SignalModel
from corpusmill.pipeline.filter.text.view import Array, text_buffers
from corpusmill.pipeline.filter.toxicity.model import ToxicityModel
from corpusmill.pipeline.filter.toxicity.scores import LABELLED, TOXIC
from corpusmill.pipeline.filter.toxicity.scores import measured as labels_of
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED, ClassifierParams, FilterParams
from corpusmill.schemas.tables import ARROW_TYPES, SignalSpec

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


_LANGUAGE = "this project's model of 319 languages (model card), or that of the recipe, on 8 windows of 200 characters spread over the text (10 of another model)"
_CARD = "model card of the shipped classifier"
SPECS: Final = (
    SignalSpec(
        name="language.code", dtype="string", unit="ISO 639 code", range=(None, None), version="3",
        origin=_LANGUAGE,
    ),
    *(
        SignalSpec(name=name, dtype="float", unit=unit, range=(0.0, 1.0), version=version, origin=origin)
        for name, unit, version, origin in (
            ("language.score", "probability", "3", _LANGUAGE),
            (
                "toxicity.score", "probability", "3",
                f"{_CARD}: mean of the worst tenth of windows of 400 characters",
            ),
            *(
                (f"toxicity.{label}", "probability", "1", f"{_CARD}: as toxicity.score, of this label; null with a model of your own")
                for label in LABELLED
            ),
            (
                "toxicity.worst_sentence", "probability", "2",
                f"{_CARD}: the worst sentence of three words or more inside those windows",
            ),
            (
                "toxicity.sentences_ratio", "share of sentences", "2",
                f"{_CARD}: sentences of 0.4 and more, which Dolma (Soldaini et al. 2024) removes",
            ),
            (
                KNOWN_WORDS, "share of words", "1",
                f"{_CARD}: words that the shipped model knows; below {TRUSTED:g} no rule on toxicity is judged",
            ),
            ("quality.score", "probability", "2", f"{_CARD}: mean of windows of 400 characters"),
        )
    ),
)  # fmt: skip

MIXED_SPECS: Final = (
    SignalSpec(
        name="language.share", dtype="float", unit="share of letters", range=(0.0, 1.0), version="1",
        origin=f"in windows whose own language is language.code; {_LANGUAGE}",
    ),
    SignalSpec(
        name="language.second", dtype="string", unit="ISO 639 code", range=(None, None), version="1",
        origin=f"of most of the other windows, null where there is none; {_LANGUAGE}",
    ),
    SignalSpec(
        name="language.second_share", dtype="float", unit="share of letters", range=(0.0, 1.0), version="1",
        origin=f"in windows of language.second; {_LANGUAGE}",
    ),
)  # fmt: skip


def specs(params: FilterParams, asked: Collection[str] = ()) -> list[SignalSpec]:
    """The models' signals: those of the languages of a document only where the recipe asks, by `language.mixed` or by a rule."""
    mixed = params.language is not None and params.language.mixed
    return [*SPECS, *(spec for spec in MIXED_SPECS if mixed or spec.name in asked)]


class Reading(NamedTuple):
    """Documents as a classifier reads them: words, and what is scored of each document."""

    words: Words
    ranges: Array  # int64[R, 2]: words of each window, or of each whole text; none without words
    owner: Array  # int64[D + 1]: ranges of each document
    # Where windows or whole texts begin and end in the bytes; int64[D + 1]: those of each document.
    pieces: tuple[Array, Array, Array]

    def sentences(self) -> tuple[Array, Array]:
        """(int64[S, 2] words of each sentence, int64[D + 1] sentences of each document)."""
        return sentences_of(self.words, *self.pieces)


class ModelSignals:
    """The columns of `specs(params, asked)`. Raises `UserError` for a label that a model does not have."""

    def __init__(
        self, params: FilterParams, models: Mapping[str, ModelFile], asked: Collection[str] = ()
    ) -> None:
        self.specs = specs(params, asked)
        self.language: Predictor | None = None
        self.profile: Profile | None = None
        self.codes = pa.array([], pa.string())
        self.classifiers: dict[str, tuple[Predictor, str, ClassifierParams, tuple[str, ...]]] = {}
        self.toxicity: tuple[ToxicityModel, Form] | None = None
        for name, file in models.items():
            if name == "quality_signals":
                continue  # over columns, not text: `quality_signals.scores`
            model = predictor.load(file.path, file.xxh3)
            section = getattr(params, name)
            if isinstance(model, SignalModel):
                raise UserError(
                    f"filter.{name}.model: {section.model} is a model over signals (allowed: a fastText .bin or .ftz): give it as"
                    " filter.quality_signals.model"
                )
            if isinstance(model, ToxicityModel):
                if name != "toxicity":
                    raise UserError(
                        f"filter.{name}.model: {section.model} is a toxicity model (allowed: a fastText .bin or .ftz)"
                    )
                if section.label not in (None, TOXIC):
                    known_label(f"filter.{name}.label", model, section.label, section.model)
                    raise UserError(
                        f"filter.{name}: a toxicity model scores all of its labels: leave `label` out"
                    )
                self.toxicity = model, section.input
            elif name == "language":
                self.language = model
                if file.profile is not None:
                    self.profile = language.profile(file.profile, tuple(model.labels))
                plain = section.labels == "model"
                self.codes = pa.array(
                    [label if plain else iso_639_1(label) for label in model.labels], pa.string()
                )
            else:
                if name == "toxicity" and section.remove_labels:
                    raise UserError(
                        f"filter.toxicity.remove_labels: {section.model} has one label, {section.label}; leave it out, or `model`"
                        " for the shipped one"
                    )
                label = known_label(f"filter.{name}.label", model, section.label or file.label, section.model)
                self.classifiers[name] = (model, label, section, file.languages)

    def languages(self, text: pa.LargeStringArray) -> dict[str, pa.Array]:
        """Name -> column: those about the language, null where the recipe does not ask; `scores` fills the others, null here."""
        columns = {spec.name: pa.nulls(len(text), ARROW_TYPES[spec.dtype]) for spec in self.specs}
        if self.language is None:
            return columns
        by_window = len(self.specs) > len(SPECS)
        with METER.phase("language"):
            found = language.identify(text, self.language, self.profile, by_window)
        own = {
            "language.code": _taken(self.codes, found.label), "language.score": pa.array(found.score),
            "language.share": pa.array(found.share), "language.second": _taken(self.codes, found.second),
            "language.second_share": pa.array(found.second_share),
        }  # fmt: skip
        return columns | {name: column for name, column in own.items() if name in columns}

    def scores(
        self, text: pa.LargeStringArray, columns: Mapping[str, pa.Array], wanted: npt.NDArray[np.bool_]
    ) -> dict[str, pa.Array]:
        """The columns of the classifiers, beside those of the languages; null where a document is not `wanted` (bool[D]), and for
        text in a language that a shipped classifier does not know. Without a language model any text is scored."""
        found: dict[str, pa.Array] = {}
        if self.toxicity is not None and wanted.any():
            # Texts in every language: short ones are often taken for another one, and `KNOWN_WORDS` states the doubt.
            with METER.phase("toxicity"):
                labels = labels_of(_only(text, wanted), *self.toxicity)
                found |= {name: _spread(values, wanted) for name, values in labels.items()}
        read: dict[tuple[str, tuple[str, ...]], Reading] = {}
        for name, (model, label, section, known) in self.classifiers.items():
            rows = wanted
            if known and self.language is not None:
                fits = pc.is_in(columns["language.code"], value_set=pa.array([*known, None], pa.string()))
                rows = wanted & np.asarray(fits)
            if not rows.any():
                continue
            with METER.phase(name):
                if (section.input, known) not in read:
                    read[section.input, known] = reading(_only(text, rows), section.input)
                scored = measured(name, read[section.input, known], model, label)
                found |= {signal: _spread(values, rows) for signal, values in scored.items()}
        return found


def _only(text: pa.LargeStringArray, rows: npt.NDArray[np.bool_]) -> pa.LargeStringArray:
    return text if rows.all() else text.filter(pa.array(rows))


def _spread(values: Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """The values of some rows as a column of all, null in the others."""
    if rows.all():
        return pa.array(values)
    whole = np.zeros(len(rows), values.dtype)
    whole[rows] = values
    return pa.array(whole, mask=~rows)


def _taken(codes: pa.StringArray, numbers: Array) -> pa.StringArray:
    """The codes of numbers of labels, null for -1."""
    return codes.take(pa.array(numbers, mask=numbers < 0))


def known_label(key: str, model: AnyModel, label: str | None, name: str | None) -> str:
    """The label that a classifier's score is the probability of; `UserError` if the model lacks it."""
    shown = model.labels if len(model.labels) <= 20 else [*model.labels[:20], "..."]
    if label is None:
        raise UserError(f"{key}: missing; the model {name} has {', '.join(shown)}")
    if plain_label(label) not in model.labels:
        raise UserError(
            f"{key}: '{label}' is not a label of the model{nearest(label, model.labels)} (allowed: {', '.join(shown)})"
        )
    return plain_label(label)


def languages(
    text: pa.LargeStringArray,
    model: Predictor,
    codes: pa.StringArray | None = None,
    known: Profile | None = None,
) -> tuple[pa.StringArray, pa.FloatArray]:
    """(code, probability) of each document's most probable language; (null, 0) where there is no text.

    `codes`, one per label, replace the model's labels.
    """
    found = language.identify(text, model, known)
    return _taken(pa.array(model.labels, pa.string()) if codes is None else codes, found.label), pa.array(
        found.score
    )


def reading(text: pa.LargeStringArray, form: Form) -> Reading:
    """How a classifier reads documents: `windows` of cleaned words, what `classifier train` makes models for, or
    the whole `text` as it stands, line feeds as spaces, which other people's models expect."""
    data, offsets = text_buffers(text)
    if form == "text":
        first, last = offsets[:-1], offsets[1:]
        owner = np.arange(len(offsets))
        words = as_it_stands(data, first, last)
    else:
        first, last, owner = windows_of(data, offsets, WINDOW_CHARS, MAX_WINDOWS)
        words, _ = cleaned(data, first, last)
    some = words.bounds[:, 0] < words.bounds[:, 1]
    before = np.concatenate([[0], np.cumsum(some)])
    return Reading(words, words.bounds[some], before[owner], (first, last, owner))


def windows(texts: Sequence[str]) -> tuple[pa.Array, Array]:
    """(cleaned windows of all texts, int64[D + 1] of each text's): what classifiers are trained on.

    A text without a word has no window.
    """
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    words, lines = cleaned(data, *(found := windows_of(data, offsets, WINDOW_CHARS, MAX_WINDOWS))[:2])
    some = lines[:, 0] < lines[:, 1]
    # The cleaned windows lie one after the other.
    ends = np.concatenate([[0], lines[some, 1]]).astype(np.int64)
    size = int(ends[-1])
    clean = pa.LargeStringArray.from_buffers(
        len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(words.data[:size].tobytes())
    )
    return clean, np.concatenate([[0], np.cumsum(some)])[found[2]]


def measured(name: str, read: Reading, model: Predictor, label: str) -> dict[str, Array]:
    """Signal -> float32[D] of one classifier."""
    ids = model.known(read.words)
    own = model.probability(read.words, read.ranges, label, ids)
    if name != "toxicity":
        return {f"{name}.score": pooled(own, read.owner, "mean")}
    sentences, of_document = read.sentences()
    single = model.probability(read.words, sentences, label, ids)
    worst, toxic = by_sentence(single, of_document)
    return {
        "toxicity.score": pooled(own, read.owner, "worst"),
        "toxicity.worst_sentence": worst,
        "toxicity.sentences_ratio": toxic,
    }
