"""`sentence-beam train`: fine-tune a sentence encoder, which `embed` then uses."""

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines import command, config_file, options, pictures
from pipelines.progress import news
from pipelines.said import Said
from transforms.extras import pip_line
from transforms.progress import duration
from transforms.space import DEFAULT_MODEL
from transforms.training import TrainOptions, recipes
from transforms.training.options import DTYPES, OBJECTIVES, POOLERS
from transforms.training.record import dev_line

if TYPE_CHECKING:
    from transforms.training.estimate import TrainingEstimate


def parser() -> argparse.ArgumentParser:
    """The options of `train`."""
    p = options.command(
        "train",
        "Fine-tune a sentence encoder on pairs or triplets of texts.",
        "sentence-beam train --input train.tsv --objective regression --scores 0,5 --dev dev.tsv --output model",
        "sentence-beam train --recipe sbert-nli --input 'nli=nli/*.jsonl' --output sbert-nli",
        "sentence-beam embed --model model --input 'corpus/*.parquet' --store store",
    )
    recipe = "take options from a published training; flags win (default: none)"
    p.add_argument("--recipe", choices=recipes.names(), help=recipe)
    printed = "print a recipe as TOML and exit (default: none)"
    p.add_argument("--print-recipe", choices=recipes.names(), action=_PrintRecipe, help=printed)
    dry = "say steps, memory and time, by a few steps, and write nothing (default: no)"
    p.add_argument("--dry-run", action="store_true", help=dry)
    _add_data(p.add_argument_group("data"))
    _add_model(p.add_argument_group("model"))
    _add_training(p.add_argument_group("training"))
    return p


def _add_data(p: argparse._ArgumentGroup) -> None:
    what = "training data: TSV, CSV, JSON lines, Parquet; several, or repeated"
    p.add_argument(
        "--input", dest="inputs", action="extend", nargs="+", required=True, metavar="[NAME=]PATH", help=what
    )
    roles = "what is learnt: classification (text1, text2, label), regression or cosent (text1, text2, score), triplet "
    roles += "(anchor, positive, negative), ranking (anchor, positive, perhaps negative)"
    p.add_argument("--objective", choices=OBJECTIVES, required=True, help=roles)
    dev = "data of the same columns that the model is scored on (default: none)"
    p.add_argument("--dev", metavar="PATH", help=dev)
    columns = "the data's names of the objective's roles, in their order (default: those names, sentence1, sentence2)"
    p.add_argument("--columns", type=options.names, default=(), metavar="A,B,C", help=columns)
    labels = "the labels, as LABEL=NUMBER if the data has numbers for them (default: all, sorted)"
    p.add_argument("--labels", type=options.names, default=(), metavar="A,B,C", help=labels)
    ends = "the ends of the data's scale of scores, which becomes 0 to 1 (default: scores are from 0 to 1)"
    p.add_argument("--scores", type=ends_of, metavar="LOW,HIGH", help=ends)
    limit = "train on the first N rows alone; dev rows are all taken (default: all)"
    p.add_argument("--limit", type=options.positive, metavar="N", help=limit)
    rejects = "most of the rows that may be unusable, as those without a text (default: 0.01)"
    p.add_argument("--max-rejects", type=options.fraction, default=0.01, metavar="FRACTION", help=rejects)


def _add_model(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--model", type=options.filled, default=DEFAULT_MODEL, metavar="MODEL", help=options.MODEL)
    options.add_revision(p)
    p.add_argument(
        "--pooler", choices=POOLERS, help="how token states become a vector (default: the model's own, or mean)"
    )
    p.add_argument(
        "--max-tokens", type=options.positive, default=128, metavar="N", help="cut longer texts (default: 128)"
    )
    widths = "widths of vectors that are trained beside the full one, for --truncate-dim (default: none)"
    p.add_argument("--matryoshka", type=widths_of, default=(), metavar="D,D", help=widths)
    lora = "train adapters of rank R, merged at the end (default: the model itself is trained)"
    p.add_argument("--lora", type=options.positive, metavar="R", help=lora)
    frozen = "train what is on top of the transformer alone (default: no)"
    p.add_argument("--freeze-backbone", action="store_true", help=frozen)
    p.add_argument("--output", required=True, type=options.filled, metavar="DIR", help="folder of the trained model")
    again = p.add_mutually_exclusive_group()
    resume = "go on with a training that was stopped; begin where there is none (default: no)"
    again.add_argument("--resume", action="store_true", help=resume)
    overwrite = "replace an earlier training in --output (default: no)"
    again.add_argument("--overwrite", action="store_true", help=overwrite)


def _add_training(p: argparse._ArgumentGroup) -> None:
    p.add_argument(
        "--epochs", type=options.positive, default=1, metavar="N", help="times through the data (default: 1)"
    )
    p.add_argument("--batch", type=options.positive, default=16, metavar="N", help="rows of a step (default: 16)")
    p.add_argument("--lr", type=options.price, default=2e-5, metavar="X", help="highest learning rate (default: 2e-5)")
    warmup = "part of the steps in which the rate rises; then it falls to 0 (default: 0.1)"
    p.add_argument("--warmup", type=options.fraction, default=0.1, metavar="FRACTION", help=warmup)
    p.add_argument("--seed", type=int, default=12, metavar="N", help="of the order of rows and all else (default: 12)")
    cached = "ranking: rows that are in memory at once, so that --batch may be large (default: all of the batch)"
    p.add_argument("--mini-batch", type=options.positive, metavar="N", help=cached)
    guide = "ranking: a model that says which texts of a batch are too near to be negatives (default: none)"
    p.add_argument("--guide", metavar="MODEL", help=guide)
    hard = "ranking: look for N negatives to each row among the positive texts of others (default: none)"
    p.add_argument("--hard-negatives", type=options.positive, metavar="N", help=hard)
    dtype = "type of the computation (default: auto, which is float32)"
    p.add_argument("--dtype", choices=DTYPES, default="auto", help=dtype)
    options.add_device(p)
    every = "steps between checkpoints and dev scores (default: a tenth of all)"
    p.add_argument("--checkpoint-steps", type=options.positive, metavar="N", help=every)
    patience = "stop after N dev scores that are no better (default: never)"
    p.add_argument("--patience", type=options.positive, metavar="N", help=patience)
    must = "exit with status 3 if no dev score is above the start's (default: no)"
    p.add_argument("--must-improve", action="store_true", help=must)


class _PrintRecipe(argparse.Action):
    """Print a recipe and end the command."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        print(recipes.path_of(values).read_text(encoding="utf8"), end="")
        parser.exit()


def with_recipe(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace]:
    """The options of the command line, with those of the recipe that it names where it does not give them."""
    given = [after for flag, after in itertools.pairwise(argv) if flag == "--recipe"]
    given += [word.removeprefix("--recipe=") for word in argv if word.startswith("--recipe=")]
    name = given[-1] if given and given[-1] in recipes.names() else None
    from_recipe = config_file.arguments(parser, str(recipes.path_of(name)), argv) if name else []
    return command.own_flags(parser, [*from_recipe, *argv])


def ends_of(text: str) -> tuple[float, float]:
    """The least and the greatest score, of LOW,HIGH. Raises ArgumentTypeError for anything else."""
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not LOW,HIGH (as in 0,5)") from None
    return low, high


def widths_of(text: str) -> tuple[int, ...]:
    """Whole numbers above zero."""
    return tuple(options.positive(word) for word in text.split(","))


def _train(args: argparse.Namespace) -> Said:
    asked = options.as_options(TrainOptions, args)
    if args.dry_run:
        from transforms.training.estimate import estimate

        found = estimate(asked, news)
        return Said(estimated(found), vars(found))
    from transforms.training.train import train

    record = train(asked, news, picture_of)
    return Said(lines(record), record)


def picture_of(record: Any) -> bytes | None:
    """A PNG of the curves; None where matplotlib is not installed."""
    if not pictures.is_installed():
        news(f"note        no training.png: it needs matplotlib ({pip_line('report')})")
        return None
    return pictures.draw_training(record)


def estimated(found: "TrainingEstimate") -> list[str]:
    """The lines of a dry run; whatever is estimated follows "about"."""
    dev = f", {found.dev_seconds:.1f}s a dev score" if found.dev_seconds else ""
    return [
        f"rows        {found.rows:,}, {found.batches:,} batches of {found.batch} an epoch",
        f"steps       {found.steps:,}, a checkpoint each {found.every:,}",
        f"parameters  {found.parameters:,}, {found.trained:,} of them trained",
        f"memory      about {found.memory / 2**20:,.0f} MB",
        f"time        about {duration(found.seconds)} ({found.step_seconds:.2f}s a step{dev})",
        "nothing was written",
    ]


def lines(record: dict[str, Any]) -> list[str]:
    """What is said at the end."""
    output = record["options"]["output"]
    early = ", stopped early" if record["stopped_early"] else ""
    dev = dev_line(record)
    return [
        f"steps       {record['steps']:,}{early}; weights of step {record['best_step']:,}",
        *([f"dev         {dev}"] if dev else []),
        f"space       {record['space'][:16]} ({record['dim']} dimensions)",
        f"model       {output}",
        f"use         sentence-beam embed --model {output}",
    ]


main = command.main(parser, _train, with_recipe)

if __name__ == "__main__":
    sys.exit(main())
