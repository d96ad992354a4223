"""`sentence-beam export`: a store's encoder as a folder, for sentence-transformers and `Encoder.load`."""

import argparse
import os
import shutil
import sys
import uuid
from pathlib import Path

from pipelines import command, options
from pipelines.said import Said
from transforms import progress, storage
from transforms.errors import OptionError
from transforms.space import Recipe
from transforms.space.exported import EXPORTED
from transforms.store import open_store
from transforms.store.calibrations import kept_calibration
from transforms.store.open import Store


def parser() -> argparse.ArgumentParser:
    """The options of `export`."""
    p = options.command(
        "export",
        "Write what made a store's vectors as a folder that makes the same ones of queries.",
        "sentence-beam export --store store --output encoder",
        "sentence-beam export --store gs://bucket/store --output encoder --project p",
    )
    options.add_store(p)
    p.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="local folder; an earlier export there is replaced, anything else is not",
    )
    return p


def _export(args: argparse.Namespace) -> Said:
    store, output = open_store(args.store), check_output(args.output)
    temporary = output.with_name(f"{output.name}.tmp-{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        with progress.stage("writing the encoder"):
            unfit = export(store, temporary)
        if output.exists():
            shutil.rmtree(output)
        os.replace(temporary, output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fits = f"not with sentence-transformers: {unfit}" if unfit else f'SentenceTransformer("{output}")'
    lines = [f"encoder     {output}", f'load        Encoder.load("{output}")', f"            {fits}"]
    return Said(lines, {"store": store.root, "output": str(output), "unfit": unfit})


def check_output(path: str) -> Path:
    """The folder to write. Raises OptionError for a URL, and for a folder that holds anything but an earlier export."""
    if not storage.is_local(path):
        raise OptionError(f"--output {path}: an export is a local folder; copy it from there")
    output = Path(storage.absolute(path))
    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / EXPORTED).is_file()):
        raise OptionError(f"--output {path} is there and is no export; name another folder")
    return output


def export(store: Store, folder: Path) -> str | None:
    """Write the export; the reason why sentence-transformers cannot load it, None where it can.

    Raises SpaceMismatchError where the model is no longer the one of the store.
    """
    from transforms.encoder.export import Export, write_export

    space, remembered = store.space, store.manifest.options
    calibration = kept_calibration(store.root, space.calibration) if space.calibration else None
    recipe = Recipe.of(remembered.to_json())
    files = recipe.files()
    found = recipe.space(files, space.calibration, calibration.dim if calibration else None)
    space.check(found, f"{recipe.model} is not the model of {store.root}", "restore it there")
    asked = recipe.query_prompt, remembered.metric or "cosine"
    return write_export(Export(files, space, recipe.pooler, calibration, *asked), folder)


main = command.main(parser, _export)

if __name__ == "__main__":
    sys.exit(main())
