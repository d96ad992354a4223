"""The options that a pipeline set for Beam's filesystems.

Beam has a public way to set them but none to read them. It keeps them in
`FileSystems._pipeline_options`; tests/transforms/storage/ checks that with Beam 2.77.0.
"""

from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions


def get_filesystem_options() -> PipelineOptions | None:
    """Return the options of Beam's filesystems in this process, None if none were set."""
    return FileSystems._pipeline_options


def get_filesystem_options_as_dict() -> dict[str, Any]:
    """Return the options that differ from Beam's defaults, for another process."""
    options = get_filesystem_options()
    return {} if options is None else options.get_all_options(drop_default=True)


def set_filesystem_options(options: dict[str, Any]) -> None:
    """Set up Beam's filesystems in this process with options from `get_filesystem_options_as_dict`."""
    FileSystems.set_options(PipelineOptions.from_dictionary(options))
