"""Work that Beam does again and again, done once: for modules of tests that run many small pipelines.

Beam parses its flags five hundred times for one small pipeline, and looks at the methods of every step five times:
half of the time of a run of forty rows.
"""

import contextlib
import functools
from collections.abc import Iterator

import apache_beam.transforms.userstate as userstate
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

CHECKED_WITH = "2.77.0"  # the Beam of which it is known that its runner changes no view and no specs that it is given


@contextlib.contextmanager
def cached_beam() -> Iterator[None]:
    """Beam keeps the views of options and the state and timer specs of a DoFn that it made last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineOptions, "view_as", functools.lru_cache(64)(PipelineOptions.view_as))
        patch.setattr(userstate, "get_dofn_specs", functools.lru_cache(64)(userstate.get_dofn_specs))
        yield
