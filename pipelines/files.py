"""`sentence-beam files`: the shards of the current snapshot, for readers of files and folders."""

import argparse
import os
import sys

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.options.store import FilesOptions
from sentence_beam.transforms.store import layout, open_store


def parser() -> argparse.ArgumentParser:
    """The options of `files`."""
    return options.command(
        "files",
        "Print the shards of the current snapshot, or link them into a folder.",
        "sentence-beam files --store store",
        "sentence-beam files --store store --link current",
        kind=FilesOptions,
    )


def _run_files(options: FilesOptions) -> CommandOutput:
    paths = open_store(options.store, options.snapshot).manifest.shard_paths
    if options.link is None:
        return CommandOutput(paths, {"shards": paths}, always=True)
    link(paths, options.link)
    return CommandOutput(
        [f"{format_count(len(paths), 'shard')} linked in {options.link}"],
        {"shards": paths, "link": options.link},
    )


def link(paths: list[str], folder: str) -> None:
    """Make a folder of symbolic links to the shards; links to an earlier snapshot's are removed.

    Raises OptionError for shards that are not local, and for a folder that holds anything else.
    """
    if any(not storage.is_local(path) for path in paths):
        raise OptionError(
            f"{cite('link')} needs a store on local disk; print the paths and copy them instead"
        )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"{cite('link')} {folder} is no folder ({error.strerror}); name an empty one"
        ) from error
    present = os.listdir(folder)
    for name in present:
        path = os.path.join(folder, name)
        if not os.path.islink(path) or not os.readlink(path).endswith(
            f"/{layout.EMBEDDINGS}/{name}"
        ):
            raise OptionError(
                f"{cite('link')} {folder} holds {name}, which is no link to a shard; name an empty"
                " folder"
            )
    for name in present:
        os.unlink(os.path.join(folder, name))
    for path in paths:
        os.symlink(path, os.path.join(folder, os.path.basename(path)))


files = function("files", FilesOptions, _run_files)
main = command.main(parser, _run_files, kind=FilesOptions)

if __name__ == "__main__":
    sys.exit(main())
