"""The public names: `from sentence_beam import Encoder, open_store, ...`.

A name is looked up when it is first used, so that importing this package loads neither torch nor
Beam.
"""

from typing import TYPE_CHECKING

from sentence_beam.hidden import check_packages

check_packages()

if TYPE_CHECKING:
    from pipelines.cluster import cluster
    from pipelines.dedup import dedup
    from pipelines.diagnose import diagnose
    from pipelines.diff import diff
    from pipelines.distill import distill
    from pipelines.embed import embed
    from pipelines.evaluate import evaluate
    from pipelines.export import export
    from pipelines.files import files
    from pipelines.fit import fit
    from pipelines.forget import forget
    from pipelines.history import history
    from pipelines.index import index
    from pipelines.info import info
    from pipelines.neighbours import neighbours
    from pipelines.pairs import pairs
    from pipelines.plan import plan
    from pipelines.push import push
    from pipelines.recalibrate import recalibrate
    from pipelines.rejects import rejects
    from pipelines.report import report
    from pipelines.rollback import rollback
    from pipelines.search import search
    from pipelines.serve import serve
    from pipelines.train import train
    from pipelines.vacuum import vacuum
    from pipelines.verify import verify
    from pipelines.watch import watch
    from transforms.base.errors import (
        DataGateError,
        InputChangedError,
        LedgerError,
        MissingExtraError,
        OptionError,
        SentenceBeamError,
        SpaceMismatchError,
    )
    from transforms.beam import (
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
    from transforms.beam.ml import EncoderModelHandler, TextEmbeddings
    from transforms.encoder import Encoder
    from transforms.evaluation.diagnostics.diagnose import Diagnosis
    from transforms.evaluation.diagnostics.options import DiagnoseOptions
    from transforms.evaluation.evaluate import Evaluation
    from transforms.evaluation.options import EvaluateOptions
    from transforms.search import Hit
    from transforms.steps.joins.neighbours import NeighboursJob
    from transforms.steps.options import EmbedOptions
    from transforms.steps.options.job import EmbedJob
    from transforms.store import Store, open_store
    from transforms.store.index_entries import IndexRequest

    __version__: str
else:  # a checker that saw this function would take every name for one of the package's
    _NAMES = {
        "pipelines.cluster": ("cluster",),
        "pipelines.dedup": ("dedup",),
        "pipelines.diff": ("diff",),
        "pipelines.distill": ("distill",),
        "pipelines.embed": ("embed",),
        "pipelines.export": ("export",),
        "pipelines.files": ("files",),
        "pipelines.fit": ("fit",),
        "pipelines.history": ("history",),
        "pipelines.index": ("index",),
        "pipelines.info": ("info",),
        "pipelines.neighbours": ("neighbours",),
        "pipelines.pairs": ("pairs",),
        "pipelines.plan": ("plan",),
        "pipelines.push": ("push",),
        "pipelines.recalibrate": ("recalibrate",),
        "pipelines.rejects": ("rejects",),
        "pipelines.report": ("report",),
        "pipelines.rollback": ("rollback",),
        "pipelines.search": ("search",),
        "pipelines.serve": ("serve",),
        "pipelines.train": ("train",),
        "pipelines.vacuum": ("vacuum",),
        "pipelines.forget": ("forget",),
        "pipelines.verify": ("verify",),
        "pipelines.watch": ("watch",),
        "transforms.beam": (
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
        "transforms.beam.ml": ("EncoderModelHandler", "TextEmbeddings"),
        "transforms.encoder": ("Encoder",),
        "transforms.base.errors": (
            "DataGateError",
            "InputChangedError",
            "LedgerError",
            "MissingExtraError",
            "OptionError",
            "SentenceBeamError",
            "SpaceMismatchError",
        ),
        "pipelines.diagnose": ("diagnose",),
        "pipelines.evaluate": ("evaluate",),
        "transforms.evaluation.diagnostics.diagnose": ("Diagnosis",),
        "transforms.evaluation.diagnostics.options": ("DiagnoseOptions",),
        "transforms.evaluation.evaluate": ("Evaluation",),
        "transforms.evaluation.options": ("EvaluateOptions",),
        "transforms.search": ("Hit",),
        "transforms.steps.options.job": ("EmbedJob",),
        "transforms.steps.joins.neighbours": ("NeighboursJob",),
        "transforms.store.index_entries": ("IndexRequest",),
        "transforms.steps.options": ("EmbedOptions",),
        "transforms.store": ("Store", "open_store"),
    }

    def __getattr__(name):
        import importlib
        from importlib import metadata

        if name == "__version__":
            return metadata.version("sentence-beam")
        module = next((module for module, names in _NAMES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from transforms.base.logs import keep_root_logger

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
    "SentenceBeamError",
    "Settle",
    "SpaceMismatchError",
    "Store",
    "TextEmbeddings",
    "WriteStore",
    "__version__",
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
    "recalibrate",
    "rejects",
    "report",
    "rollback",
    "search",
    "serve",
    "train",
    "vacuum",
    "verify",
    "watch",
]
