"""The public names: `from sentence_beam import Encoder, open_store, ...`.

A name is looked up when it is first used, so that importing this package loads neither torch nor
Beam. `pipelines` and `transforms` are packages of this one: links to the folders beside it in a
checkout, folders in a distribution.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_beam.pipelines.cluster import cluster
    from sentence_beam.pipelines.dedup import dedup
    from sentence_beam.pipelines.diagnose import diagnose
    from sentence_beam.pipelines.diff import diff
    from sentence_beam.pipelines.distill import distill
    from sentence_beam.pipelines.embed import embed
    from sentence_beam.pipelines.evaluate import evaluate
    from sentence_beam.pipelines.export import export
    from sentence_beam.pipelines.files import files
    from sentence_beam.pipelines.fit import fit
    from sentence_beam.pipelines.forget import forget
    from sentence_beam.pipelines.history import history
    from sentence_beam.pipelines.index import index
    from sentence_beam.pipelines.info import info
    from sentence_beam.pipelines.neighbours import neighbours
    from sentence_beam.pipelines.pairs import pairs
    from sentence_beam.pipelines.plan import plan
    from sentence_beam.pipelines.push import push
    from sentence_beam.pipelines.recalibrate import recalibrate
    from sentence_beam.pipelines.rejects import rejects
    from sentence_beam.pipelines.report import report
    from sentence_beam.pipelines.rollback import rollback
    from sentence_beam.pipelines.search import search
    from sentence_beam.pipelines.serve import serve
    from sentence_beam.pipelines.train import train
    from sentence_beam.pipelines.vacuum import vacuum
    from sentence_beam.pipelines.verify import verify
    from sentence_beam.pipelines.watch import watch
    from sentence_beam.transforms.base.errors import (
        DataGateError,
        InputChangedError,
        LedgerError,
        MissingExtraError,
        OptionError,
        SentenceBeamError,
        SpaceMismatchError,
    )
    from sentence_beam.transforms.beam import (
        BuildIndex,
        Chunks,
        Commit,
        Embed,
        EmbedRows,
        Neighbours,
        Plan,
        Settle,
        WriteStore,
    )
    from sentence_beam.transforms.beam.ml import EncoderModelHandler, TextEmbeddings
    from sentence_beam.transforms.corpus import chunk
    from sentence_beam.transforms.encoder import Encoder
    from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseOptions
    from sentence_beam.transforms.evaluation.diagnostics.diagnosis import Diagnosis
    from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
    from sentence_beam.transforms.evaluation.scoring import Evaluation
    from sentence_beam.transforms.search import Hit
    from sentence_beam.transforms.steps.joins.nearest_rows import NeighboursJob, query_blocks
    from sentence_beam.transforms.steps.options import EmbedOptions
    from sentence_beam.transforms.steps.options.job import EmbedJob
    from sentence_beam.transforms.steps.options.resolve import resolve_run
    from sentence_beam.transforms.store import Store, open_store
    from sentence_beam.transforms.store.index_entries import IndexRequest
    from sentence_beam.transforms.store.records import Problem

    __version__: str
else:  # a checker that saw this function would take every name for one of the package's
    _NAMES = {
        "sentence_beam.pipelines.cluster": ("cluster",),
        "sentence_beam.pipelines.dedup": ("dedup",),
        "sentence_beam.pipelines.diff": ("diff",),
        "sentence_beam.pipelines.distill": ("distill",),
        "sentence_beam.pipelines.embed": ("embed",),
        "sentence_beam.pipelines.export": ("export",),
        "sentence_beam.pipelines.files": ("files",),
        "sentence_beam.pipelines.fit": ("fit",),
        "sentence_beam.pipelines.history": ("history",),
        "sentence_beam.pipelines.index": ("index",),
        "sentence_beam.pipelines.info": ("info",),
        "sentence_beam.pipelines.neighbours": ("neighbours",),
        "sentence_beam.pipelines.pairs": ("pairs",),
        "sentence_beam.pipelines.plan": ("plan",),
        "sentence_beam.pipelines.push": ("push",),
        "sentence_beam.pipelines.recalibrate": ("recalibrate",),
        "sentence_beam.pipelines.rejects": ("rejects",),
        "sentence_beam.pipelines.report": ("report",),
        "sentence_beam.pipelines.rollback": ("rollback",),
        "sentence_beam.pipelines.search": ("search",),
        "sentence_beam.pipelines.serve": ("serve",),
        "sentence_beam.pipelines.train": ("train",),
        "sentence_beam.pipelines.vacuum": ("vacuum",),
        "sentence_beam.pipelines.forget": ("forget",),
        "sentence_beam.pipelines.verify": ("verify",),
        "sentence_beam.pipelines.watch": ("watch",),
        "sentence_beam.transforms.beam": (
            "BuildIndex",
            "Chunks",
            "Commit",
            "Embed",
            "EmbedRows",
            "Neighbours",
            "Plan",
            "Settle",
            "WriteStore",
        ),
        "sentence_beam.transforms.beam.ml": ("EncoderModelHandler", "TextEmbeddings"),
        "sentence_beam.transforms.corpus": ("chunk",),
        "sentence_beam.transforms.encoder": ("Encoder",),
        "sentence_beam.transforms.base.errors": (
            "DataGateError",
            "InputChangedError",
            "LedgerError",
            "MissingExtraError",
            "OptionError",
            "SentenceBeamError",
            "SpaceMismatchError",
        ),
        "sentence_beam.pipelines.diagnose": ("diagnose",),
        "sentence_beam.pipelines.evaluate": ("evaluate",),
        "sentence_beam.transforms.evaluation.diagnostics.diagnosis": ("Diagnosis",),
        "sentence_beam.transforms.evaluation.diagnostics.diagnose_options": ("DiagnoseOptions",),
        "sentence_beam.transforms.evaluation.scoring": ("Evaluation",),
        "sentence_beam.transforms.evaluation.evaluate_options": ("EvaluateOptions",),
        "sentence_beam.transforms.search": ("Hit",),
        "sentence_beam.transforms.steps.options.job": ("EmbedJob",),
        "sentence_beam.transforms.steps.options.resolve": ("resolve_run",),
        "sentence_beam.transforms.steps.joins.nearest_rows": ("NeighboursJob", "query_blocks"),
        "sentence_beam.transforms.store.index_entries": ("IndexRequest",),
        "sentence_beam.transforms.store.records": ("Problem",),
        "sentence_beam.transforms.steps.options": ("EmbedOptions",),
        "sentence_beam.transforms.store": ("Store", "open_store"),
    }

    def __getattr__(name):
        import importlib
        from importlib import metadata

        if name == "__version__":
            return metadata.version("sentence-beam")
        module = next((module for module, names in _NAMES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from sentence_beam.transforms.base.logs import keep_root_logger

        with keep_root_logger():  # most names import Beam
            value = globals()[name] = getattr(importlib.import_module(module), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "BuildIndex",
    "Chunks",
    "Commit",
    "DataGateError",
    "DiagnoseOptions",
    "Diagnosis",
    "Embed",
    "EmbedJob",
    "EmbedOptions",
    "EmbedRows",
    "Encoder",
    "EncoderModelHandler",
    "EvaluateOptions",
    "Evaluation",
    "Hit",
    "IndexRequest",
    "InputChangedError",
    "LedgerError",
    "MissingExtraError",
    "Neighbours",
    "NeighboursJob",
    "OptionError",
    "Plan",
    "Problem",
    "SentenceBeamError",
    "Settle",
    "SpaceMismatchError",
    "Store",
    "TextEmbeddings",
    "WriteStore",
    "__version__",
    "chunk",
    "cluster",
    "dedup",
    "diagnose",
    "diff",
    "distill",
    "embed",
    "evaluate",
    "export",
    "files",
    "fit",
    "forget",
    "history",
    "index",
    "info",
    "neighbours",
    "open_store",
    "pairs",
    "plan",
    "push",
    "query_blocks",
    "recalibrate",
    "rejects",
    "report",
    "resolve_run",
    "rollback",
    "search",
    "serve",
    "train",
    "vacuum",
    "verify",
    "watch",
]
