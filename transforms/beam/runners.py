"""Where a pipeline's workers are: in the submitting process, or on other machines."""

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)

_IN_PROCESS = (
    "fnapirunner",
    "directrunner",
    "inprocessrunner",
    "switchingdirectrunner",
    "bundlebaseddirectrunner",
)
_PRISM = "prismrunner"
_FLINK_HERE = ("[local]", "[auto]")


def works_in_process(runner: str, options: PipelineOptions) -> bool:
    """Whether a runner works inside the submitting process (or in workers that die with it).

    `runner` is the name of its class, in lower case.
    """
    environment = options.view_as(PortableOptions).environment_type
    if runner == "flinkrunner" and not environment:
        return options.view_as(FlinkRunnerOptions).flink_master in _FLINK_HERE
    if runner in _IN_PROCESS or (runner == _PRISM and not environment):
        return True
    return bool(environment == "LOOPBACK")
