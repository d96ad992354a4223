"""A parser of all of Beam's flags, to recognise misspelt ones.

Beam has no public one. This module builds it as Beam does, from the private names
`_BeamArgumentParser` and `_add_argparse_args`; checked with Beam 2.77.0, by
tests/pipelines/test_beam_parser.py.
"""

from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

from sentence_beam.pipelines.common.options import Parser


class _OurBeamParser(Parser, _BeamArgumentParser):
    """Beam's parser with mistakes as OptionError."""


def make_beam_parser() -> Parser:
    """Return a parser of the flags of all imported classes of pipeline options."""
    parser = _OurBeamParser(allow_abbrev=False, add_help=False)
    for options in sorted(_find_subclasses(PipelineOptions), key=lambda cls: cls.__name__):
        if "_add_argparse_args" in vars(options):
            options._add_argparse_args(parser)  # type: ignore[attr-defined]
    return parser


def list_flags() -> set[str]:
    """Return the names of Beam's flags."""
    return set(make_beam_parser().actions)


def _find_subclasses(cls: type) -> set[type]:
    direct: list[type] = cls.__subclasses__()
    return {*direct, *(sub for direct_class in direct for sub in _find_subclasses(direct_class))}
