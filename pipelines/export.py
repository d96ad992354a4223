"""`sentence-beam export`: a store's encoder or vectors as files for other programs."""

import argparse
import contextlib
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.optional_beam import make_function, parse
from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.search.searcher import Searcher
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.space.exported import EXPORTED
from sentence_beam.transforms.space.int8_model import INT8
from sentence_beam.transforms.steps.joins.export_parts import (
    WRITERS,
    ExportJob,
    check_folder,
    conclude,
    cut_parts,
    read_concluded,
    write_part,
)
from sentence_beam.transforms.steps.joins.export_vectors import ABOUT, IDS, export_vectors
from sentence_beam.transforms.steps.options.store import ExportOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.open import Store
from sentence_beam.transforms.store.removed import naming_removal

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

AGAIN = "export again"


def parser() -> argparse.ArgumentParser:
    """The options of `export`."""
    return options.command(
        "export",
        "Write what made a store's vectors as a folder that makes the same ones of queries, or the"
        " vectors themselves.",
        "sentence-beam export --store store --output encoder",
        "sentence-beam export --store store --vectors faiss --output plain",
        "sentence-beam export --store gs://bucket/store --vectors npy --output gs://bucket/vectors"
        " --project p",
        kind=ExportOptions,
    )


def _export(options: ExportOptions, beam_options: "PipelineOptions | None") -> CommandOutput:
    store = open_store(options.store, options.snapshot)
    if beam_options is not None and options.vectors not in WRITERS:
        raise OptionError(
            f"--runner is for {cite('vectors')} npy and lance: other exports are one file; leave it"
            " out"
        )
    if options.vectors in WRITERS and (beam_options or not storage.is_local(options.output)):
        return _export_parts(store, options, beam_options)
    marker = ABOUT if options.vectors else EXPORTED
    output = check_output(options.output, marker)
    with naming_removal([store.manifest], AGAIN), _replacing(output) as temporary:
        if options.vectors is not None:
            return _write_files(store, options, temporary, output)
        return _export_encoder(store, temporary, output)


@contextlib.contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `output` when the block ends, and is removed if it fails."""
    temporary = output.with_name(f"{output.name}.tmp-{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if output.exists():
            shutil.rmtree(output)
        os.replace(temporary, output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _export_encoder(store: Store, folder: Path, output: Path) -> CommandOutput:
    with progress.stage("writing the encoder"):
        unfit = write_encoder(store, folder)
    if unfit:
        fits = f"not with sentence-transformers: {unfit}"
    else:
        fits = f'SentenceTransformer("{output}")'
    lines = [
        format_summary_line("encoder", output),
        format_summary_line("load", f'Encoder.load("{output}")'),
        format_summary_line("", fits),
    ]
    return CommandOutput(lines, {"store": store.root, "output": str(output), "unfit": unfit})


def _write_files(store: Store, options: ExportOptions, folder: Path, output: Path) -> CommandOutput:
    with progress.stage("writing the vectors", things="rows"):
        about = export_vectors(store, str(options.vectors), folder, options.where)
    files = ", ".join(about["files"])
    kept = f"{about['rows']:,} of {about['dim']} components, {about['metric']}"
    lines = [
        format_summary_line("vectors", kept),
        format_summary_line("files", f"{files}, {ABOUT}"),
        format_summary_line("folder", output),
    ]
    if options.vectors == "faiss":
        of = ", queries of length 1" if about["metric"] == "cosine" else ""
        lines.append(
            format_summary_line("index", f"{about['factory']}{of}; its ids are rows of {IDS}")
        )
    return CommandOutput(lines, {"output": str(output), **about})


def _export_parts(
    store: Store, options: ExportOptions, beam_options: "PipelineOptions | None"
) -> CommandOutput:
    """Write the vectors in parts, by the workers of a pipeline or one after the other."""
    manifest = store.manifest
    output = storage.absolute(options.output)
    check_folder(output)
    Searcher(manifest).check_filter(options.where)
    job = ExportJob(
        manifest.root,
        manifest.run,
        manifest.digest,
        output,
        uuid.uuid4().hex,
        str(options.vectors),
        options.where,
    )
    with naming_removal([manifest], AGAIN):
        if beam_options is None:
            with progress.stage("writing the vectors", things="rows"):
                conclude([write_part(part, job) for part in cut_parts(job)], job)
        else:
            _run_pipeline(job, beam_options)
        about = read_concluded(job)
    kept = f"{about['rows']:,} of {about['dim']} components, {about['metric']}"
    lines = [
        format_summary_line("vectors", kept),
        format_summary_line(
            "files", f"{ABOUT}, which names {format_count(len(about['parts']), 'part')}"
        ),
        format_summary_line("folder", output),
    ]
    return CommandOutput(lines, {"output": output, **about})


def _run_pipeline(job: ExportJob, beam_options: "PipelineOptions") -> None:
    """Write the parts by a pipeline. Raises OptionError if nobody waits for it."""
    import apache_beam as beam

    from sentence_beam.pipelines.common import engines
    from sentence_beam.transforms.beam.written_parts import WriteParts

    engines.check_waits(beam_options, "export")
    engines.check_shared(beam_options, store=job.root, output=job.output)
    with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
        written = WriteParts(job, cut_parts, write_part, conclude)
        _ = pipeline | "Snapshot" >> beam.Create([job.run]) | "Export" >> written


def check_output(path: str, marker: str) -> Path:
    """Return the folder to write. Raises OptionError for a URL and for a folder with other files.

    An earlier export of the same sort has the file `marker`.
    """
    if not storage.is_local(path):
        raise OptionError(
            f"{cite('output')} {path}: an export is a local folder, except that of"
            f" {cite('vectors')} npy and lance; copy it from there"
        )
    output = Path(storage.absolute(path))
    if output.is_file() or (
        output.is_dir() and any(output.iterdir()) and not (output / marker).is_file()
    ):
        raise OptionError(f"{cite('output')} {path} is there and is no export; name another folder")
    return output


def write_encoder(store: Store, folder: Path) -> str | None:
    """Write the export; the reason why sentence-transformers cannot load it, None if it can.

    Raises SpaceMismatchError if the model is no longer the one of the store, OptionError for a
    space in int8.
    """
    from sentence_beam.transforms.encoder.exported_model import Export, write_export

    space = store.space
    if space.dtype == INT8:
        raise OptionError(
            f"{store.root}: an encoder in int8 is not portable, because its quantised model belongs"
            f" to the store; search or serve the store, or export {cite('vectors')}"
        )
    remembered = store.manifest.options
    calibration = read_kept_calibration(store.root, space)
    recipe = Recipe.from_options(remembered.to_json())
    files = recipe.files()
    dim = calibration.dim if calibration else None
    space_of_files = recipe.space(files, space.calibration, dim)
    space.check(
        space_of_files, f"{recipe.model} is not the model of {store.root}", "restore it there"
    )
    query_options = recipe.query_prompt, remembered.metric or "cosine"
    return write_export(Export(files, space, recipe.pooler, calibration, *query_options), folder)


export = function("export", ExportOptions, make_function(_export))
main = command.main(parser, _export, parse, kind=ExportOptions)

if __name__ == "__main__":
    sys.exit(main())
