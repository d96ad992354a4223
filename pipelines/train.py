"""`sentence-beam train`: fine-tune a sentence encoder, which `embed` then uses."""

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command, config_file, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.progress import print_news
from sentence_beam.transforms.base.option import narrowed
from sentence_beam.transforms.base.progress import format_duration
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.training import TrainOptions, recipes
from sentence_beam.transforms.training.model_record import describe_dev, describe_test
from sentence_beam.transforms.training.train_options import TrainCommandOptions

if TYPE_CHECKING:
    from sentence_beam.transforms.training.training_estimate import TrainingEstimate


def parser() -> argparse.ArgumentParser:
    """The options of `train`."""
    p = options.command(
        "train",
        "Fine-tune a sentence encoder on pairs or triplets of texts.",
        "sentence-beam train --input train.tsv --objective regression --scores 0,5 --dev dev.tsv"
        " --output model",
        "sentence-beam train --recipe sbert-nli --input 'nli=nli/*.jsonl' --output sbert-nli",
        "sentence-beam embed --model model --input 'corpus/*.parquet' --store store",
        kind=TrainCommandOptions,
    )
    printed = "print a recipe as TOML and exit (default: none)"
    p.add_argument(
        "--print-recipe", choices=recipes.list_recipes(), action=_PrintRecipe, help=printed
    )
    return p


class _PrintRecipe(argparse.Action):
    """Print a recipe and end the command."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        print(recipes.find_recipe(values).read_text(encoding="utf8"), end="")
        parser.exit()


def with_recipe(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace]:
    """Return the options of the command line, completed from the recipe that it names."""
    assert isinstance(parser, options.Parser)
    names = [parser.get_default("recipe")]
    names += [after for flag, after in itertools.pairwise(argv) if flag == "--recipe"]
    names += [word.removeprefix("--recipe=") for word in argv if word.startswith("--recipe=")]
    name = names[-1] if names and names[-1] in recipes.list_recipes() else None
    if name:
        recipe = config_file.read_options(
            str(recipes.find_recipe(name)), "train", TrainCommandOptions
        )
        parser.take(recipe.own, argv)
    return command.parse_own_flags(parser, argv)


def _train(command_options: TrainCommandOptions) -> CommandOutput:
    options = narrowed(TrainOptions, command_options)
    if command_options.dry_run:
        from sentence_beam.transforms.training.training_estimate import estimate

        training = estimate(options, print_news)
        return CommandOutput(describe_estimate(training), vars(training))
    if command_options.seeds:
        from sentence_beam.transforms.training.seeds import train_seeds

        several = train_seeds(options, command_options.seeds, print_news)
        return CommandOutput(describe_seeds(several), several)
    from sentence_beam.transforms.training.training_run import train

    record = train(options, print_news)
    return CommandOutput(describe_record(record), record)


def describe_estimate(training: "TrainingEstimate") -> list[str]:
    """The lines of a dry run; whatever is estimated follows "about"."""
    dev = f", {training.dev_seconds:.1f}s a dev score" if training.dev_seconds else ""
    return [
        format_summary_line(
            "rows", f"{training.rows:,}, {training.batches:,} batches of {training.batch} an epoch"
        ),
        format_summary_line("steps", f"{training.steps:,}, a checkpoint each {training.every:,}"),
        format_summary_line(
            "parameters", f"{training.parameters:,}, {training.trained:,} of them trained"
        ),
        format_summary_line("memory", f"about {training.memory / 2**20:,.0f} MB"),
        format_summary_line(
            "time",
            f"about {format_duration(training.seconds)} ({training.step_seconds:.2f}s a step{dev})",
        ),
        "nothing was written",
    ]


def describe_record(record: dict[str, Any]) -> list[str]:
    """Return the closing lines, one fact a line."""
    output = record["options"]["output"]
    stopped = ", stopped early" if record["stopped_early"] else ""
    steps = f"{record['steps']:,}{stopped}"
    summary = [format_summary_line("steps", f"{steps}; weights of step {record['best_step']:,}")]
    for label, scores in (("dev", describe_dev(record)), ("test", describe_test(record))):
        if scores:
            summary.append(format_summary_line(label, scores))
    use = f"sentence-beam evaluate --task NAME=PATH --cross-encoder {output}"
    if record["space"] is not None:
        summary.append(
            format_summary_line("space", f"{record['space'][:16]} ({record['dim']} dimensions)")
        )
        use = f"sentence-beam embed --model {output}"
    return [*summary, format_summary_line("model", output), format_summary_line("use", use)]


def describe_seeds(seeds: dict[str, Any]) -> list[str]:
    """Return the closing lines of several trainings."""
    summary = [
        format_summary_line("seeds", f"{len(seeds['seeds'])}, all kept: {seeds['output']}/seed-*")
    ]
    for part in ("dev", "test"):
        spread = seeds.get(part)
        if spread:
            mean = (
                f"{seeds['metric']} {spread['mean']:.2f} on average, standard deviation"
                f" {spread['deviation']:.2f}"
            )
            summary.append(
                format_summary_line(part, f"{mean} ({spread['low']:.2f} to {spread['high']:.2f})")
            )
    if seeds["best"] is not None:
        folder = f"{seeds['output']}/seed-{seeds['best']}"
        summary.append(format_summary_line("best", f"seed {seeds['best']} by dev score: {folder}"))
    return summary


train = function("train", TrainCommandOptions, _train)
main = command.main(parser, _train, with_recipe, kind=TrainCommandOptions)

if __name__ == "__main__":
    sys.exit(main())
