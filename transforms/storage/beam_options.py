"""What a pipeline has set for Beam's filesystems. Beam has a public way to set it and none to ask for it.

Beam keeps it in `FileSystems._pipeline_options`; checked with Beam 2.77.0, by tests/transforms/storage/.
"""

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions


def filesystem_options() -> PipelineOptions | None:
    """The options that Beam's filesystems were given in this process, None where they were given none."""
    return FileSystems._pipeline_options
