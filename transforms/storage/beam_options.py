"""What a pipeline has set for Beam's filesystems. Beam has a public way to set it and none to ask
for it.

Beam keeps it in `FileSystems._pipeline_options`; checked with Beam 2.77.0, by
tests/transforms/storage/.
"""

from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions


def filesystem_options() -> PipelineOptions | None:
    """The options that Beam's filesystems were given in this process, None where they were given
    none.
    """
    return FileSystems._pipeline_options


def filesystem_options_as_dict() -> dict[str, Any]:
    """Those of the options that differ from Beam's defaults, for another process."""
    options = filesystem_options()
    return options.get_all_options(drop_default=True) if options is not None else {}


def set_filesystem_options(options: dict[str, Any]) -> None:
    """Set up Beam's filesystems in this process with options from `filesystem_options_as_dict`."""
    FileSystems.set_options(PipelineOptions.from_dictionary(options))
