"""Rewrite `schemas/json/*.json` from the models: `python -m corpusmill.schemas`."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

FOLDER = Path(__file__).parent / "json"


def models() -> dict[str, type[BaseModel]]:
    """File name -> the model whose JSON Schema it holds."""
    from corpusmill.schemas.ablation import Ablation
    from corpusmill.schemas.compression import Compression
    from corpusmill.schemas.continual import Phase
    from corpusmill.schemas.conversations import Conversations
    from corpusmill.schemas.cross_validation import CrossValidation
    from corpusmill.schemas.decontamination import Contamination, EvaluationIndex, TouchedItem
    from corpusmill.schemas.dedup_results import DedupPlan, DedupQuality, IndexFile
    from corpusmill.schemas.distillation import StoredLogits, StoreSummary
    from corpusmill.schemas.evaluation import (
        CalibrationResults,
        ContaminationResults,
        EvaluationResults,
        Item,
        SpeedResults,
    )
    from corpusmill.schemas.fairness import FairnessResults, Terms, ToxicityScores
    from corpusmill.schemas.glitch import GlitchTokens
    from corpusmill.schemas.judging import JudgedText, Judgement, JudgeReport, Preference
    from corpusmill.schemas.manifest import (
        CheckpointManifest,
        Expired,
        PartitionManifest,
        RecordSignature,
        RunInputs,
        RunRecord,
        StageManifest,
        TensorTable,
        UnitManifest,
    )
    from corpusmill.schemas.phases import Averaged, Exposure, Forgetting
    from corpusmill.schemas.private import PrivateSet
    from corpusmill.schemas.profile import RunProfile
    from corpusmill.schemas.pseudo_labels import PseudoLabels
    from corpusmill.schemas.publication import About, Publication
    from corpusmill.schemas.recipe import Recipe
    from corpusmill.schemas.report import Report
    from corpusmill.schemas.rewards import RewardSummary
    from corpusmill.schemas.robustness import Robustness
    from corpusmill.schemas.search import SearchConfig
    from corpusmill.schemas.shards import (
        BlockDocuments,
        ShardIndex,
        ShardSet,
        Takedown,
        TextDocument,
        TextIndex,
    )
    from corpusmill.schemas.split import Similarity, SplitSummary
    from corpusmill.schemas.style import StyleGuide, StyleReport
    from corpusmill.schemas.tables import SignalSpec
    from corpusmill.schemas.tasks import Task, TaskData
    from corpusmill.schemas.tokenizer import TokenizerComparison, TokenizerStats
    from corpusmill.schemas.training import RunData, TrainConfig

    found: tuple[type[BaseModel], ...] = (
        Recipe,
        TrainConfig,
        RunData,
        Phase,
        Exposure,
        Forgetting,
        Averaged,
        PseudoLabels,
        RewardSummary,
        Robustness,
        ContaminationResults,
        CalibrationResults,
        EvaluationResults,
        Task,
        TaskData,
        Item,
        SpeedResults,
        Compression,
        StoredLogits,
        StoreSummary,
        CrossValidation,
        FairnessResults,
        Terms,
        ToxicityScores,
        GlitchTokens,
        JudgedText,
        Judgement,
        Preference,
        JudgeReport,
        SearchConfig,
        Conversations,
        StyleGuide,
        StyleReport,
        StageManifest,
        PartitionManifest,
        ShardIndex,
        ShardSet,
        BlockDocuments,
        TextIndex,
        TextDocument,
        Takedown,
        SignalSpec,
        CheckpointManifest,
        TensorTable,
        RunRecord,
        RecordSignature,
        RunInputs,
        UnitManifest,
        PrivateSet,
        RunProfile,
        Expired,
        DedupPlan,
        DedupQuality,
        IndexFile,
        EvaluationIndex,
        Contamination,
        TouchedItem,
        SplitSummary,
        Similarity,
        TokenizerStats,
        TokenizerComparison,
        Report,
        Publication,
        About,
        Ablation,
    )
    return {f"{model.__name__}.json": model for model in found}


def arrow_schemas() -> dict[str, str]:
    """File name -> the Arrow schema in words, for the tables that JSON Schema cannot describe."""
    from corpusmill.schemas.decontamination import ANSWERS, GRAMS, ITEMS, NEAR_UNITS, SEEDS, UNITS
    from corpusmill.schemas.evaluation import DOCUMENT_LOSSES
    from corpusmill.schemas.publication import PUBLISHED_DOCUMENTS, PUBLISHED_LEDGER
    from corpusmill.schemas.tables import (
        CHANGES,
        CLUSTERS,
        DECISIONS,
        DOCUMENTS,
        GROUPS,
        HITS,
        HOLDING,
        INGEST_DECISIONS,
        LEDGER,
        MATCHES,
        NEAR_HITS,
        REMOVALS,
        SPANS,
    )

    tables = {
        "documents": DOCUMENTS,
        "decisions": DECISIONS,
        "ingest_decisions": INGEST_DECISIONS,
        "ledger": LEDGER,
        "dedup_clusters": CLUSTERS,
        "dedup_removals": REMOVALS,
        "dedup_spans": SPANS,
        "dedup_changes": CHANGES,
        "decontaminate_items": ITEMS,
        "decontaminate_units": UNITS,
        "decontaminate_grams": GRAMS,
        "decontaminate_answers": ANSWERS,
        "decontaminate_near_units": NEAR_UNITS,
        "decontaminate_seeds": SEEDS,
        "decontaminate_hits": HITS,
        "decontaminate_near_hits": NEAR_HITS,
        "decontaminate_matches": MATCHES,
        "validation_groups": GROUPS,
        "takedown_shards": HOLDING,
        "evaluation_documents": DOCUMENT_LOSSES,
        "published_documents": PUBLISHED_DOCUMENTS,
        "published_ledger": PUBLISHED_LEDGER,
    }
    return {
        f"{name}.arrow.txt": schema.to_string(show_schema_metadata=False) for name, schema in tables.items()
    }


def exported() -> dict[str, str]:
    """File name -> content, as it should be."""
    schemas = {
        name: json.dumps(model.model_json_schema(), indent=1, sort_keys=True)
        for name, model in models().items()
    }
    return {name: text + "\n" for name, text in {**schemas, **arrow_schemas()}.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.iterdir():
        stale.unlink()
    for name, text in exported().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
