"""`sentence-beam evaluate`: scores of poolers and calibrations, all from one forward pass."""

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command, options, specs
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import object_or_keywords, signature_of
from sentence_beam.pipelines.common.output import check_file, check_output, write_rows, write_text
from sentence_beam.pipelines.common.progress import muting
from sentence_beam.pipelines.common.tables import Column, cut_middle, show_number
from sentence_beam.pipelines.common.tables import format_table as lines_of
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.option import narrowed
from sentence_beam.transforms.evaluation import EvaluateOptions
from sentence_beam.transforms.evaluation.evaluate_options import AVERAGE, EvaluateCommandOptions

if TYPE_CHECKING:
    from sentence_beam.transforms.evaluation.scoring import Evaluation

COLUMNS = (
    Column("task"), Column("metric"), Column("pooler", cut_middle, least=24),
    Column("calibration", cut_middle, spare=2),
    *(Column(head, right=True, spare=spare) for head, spare in (
        ("dim", 5), ("n", 6), ("score", None), ("from", 0), ("to", 0), ("mean", 9), ("wmean", 10),
        ("diff", 3), ("from", 8), ("to", 7), ("p", 4), ("texts/s", 11), ("bytes", 12),
    )),
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The options of `evaluate`."""
    return options.command(
        "evaluate",
        "Score poolers and calibrations on tasks, with intervals and tests.",
        "sentence-beam evaluate --task stsb=stsb.tsv --pooler mean --pooler cls",
        "sentence-beam evaluate --task sts=2012.tsv,2013.tsv --model BAAI/bge-small-en-v1.5"
        " --output scores.jsonl",
        words=specs.describe_poolers(),
        kind=EvaluateCommandOptions,
    )


def _evaluate(options: EvaluateCommandOptions) -> CommandOutput:
    check_files(options)
    if not options.tasks and not options.make:
        raise OptionError(f"no task is given; say {cite('task')} NAME=PATH")
    from sentence_beam.transforms.evaluation.scoring import evaluate

    rows: list[dict[str, Any]] = []
    try:
        evaluation = evaluate(narrowed(EvaluateOptions, options), rows.extend)
        rows = evaluation.rows
        _write(options, evaluation)
    except Exception as error:
        if not rows:
            raise
        return _keep_rows(options.output, rows, error)
    lines = [format_scores(rows), *(f"note: {note}" for note in evaluation.notes)]
    return CommandOutput(lines, {"scores": rows, "notes": list(evaluation.notes)}, always=True)


def evaluate(options: EvaluateOptions | None = None, **keywords: Any) -> "Evaluation | str":
    """Score methods on tasks, by an object of options or by keywords, and return the scores.

    Keywords are those of `sentence-beam evaluate`: `tasks=["sts=stsb.tsv"]`, `poolers=`, ... With
    `output=` the scores are written there, and its path is returned. Raises the errors with which
    the command ends.
    """
    from sentence_beam.transforms.evaluation.scoring import evaluate as score

    with keep_root_logger(), muting():
        given_options = object_or_keywords(EvaluateCommandOptions, "evaluate", options, keywords)
        check_files(given_options)
        evaluation = score(narrowed(EvaluateOptions, given_options))
        _write(given_options, evaluation)
        return given_options.output or evaluation


evaluate.__signature__ = signature_of(EvaluateCommandOptions, "options")  # type: ignore[attr-defined]


def check_files(options: EvaluateCommandOptions) -> None:
    """Raise OptionError for a file that cannot be written."""
    check_output(options.output)
    if options.report:
        check_file(options.report, cite("report"))


def _write(options: EvaluateCommandOptions, evaluation: "Evaluation") -> None:
    """Write the files that the options name."""
    if options.output:
        write_rows(options.output, evaluation.rows)
        if evaluation.grid:
            _draw_heads(options.output, evaluation.rows, evaluation.grid)
    if options.report:
        from sentence_beam.transforms.evaluation.scores_page import render_page

        write_text(
            options.report,
            render_page(options.model, evaluation.rows, evaluation.notes, evaluation.grid),
        )


def _draw_heads(output: str, rows: list[dict[str, Any]], grid: tuple[int, int]) -> None:
    """Write `<output's stem>-<task>.svg` for each task: the scores by block and head."""
    from sentence_beam.transforms.evaluation.heads import draw_head_maps
    from sentence_beam.transforms.report.pictures import draw_heat_map

    for task, heat_map in draw_head_maps(rows, grid).items():
        if task != AVERAGE:
            write_text(f"{os.path.splitext(output)[0]}-{task}.svg", draw_heat_map(heat_map))


def _keep_rows(output: str | None, rows: list[dict[str, Any]], error: Exception) -> CommandOutput:
    """Write the rows that were computed before an error, and return the table of them."""
    note = "unfinished: these scores were computed before an error"
    if output:
        with contextlib.suppress(SentenceBeamError):  # the file may be what failed
            write_rows(output, rows)
    return CommandOutput(
        [format_scores(rows), f"note: {note}"],
        {"scores": rows, "notes": [note]},
        always=True,
        error=error,
    )


def format_scores(rows: list[dict[str, Any]]) -> str:
    """Return the scores as text, a line for each task, metric and method, with means of subsets."""
    lines = []
    for row in (row for row in rows if row["subset"] == "all"):
        same = ("task", "metric", "pooler", "calibration", "dim")
        beside = {r["subset"]: r["score"] for r in rows if all(r[key] == row[key] for key in same)}
        means = [beside["mean"], beside["wmean"]] if len(beside) > 4 else [None, None]
        scores = [row["score"], row["low"], row["high"], *means]
        numbers = [*scores, row["diff"], row["diff_low"], row["diff_high"]]
        cells = [show_number(value, ".2f") for value in numbers]
        if row["score"] is None:
            cells[0] = "-"
        p = show_number(row["p_holm"], ".4f")
        speed = row.get("sentences_s") or row.get("queries_s")
        cost = (show_number(speed, ".0f"), show_number(row.get("bytes_row"), ".0f"))
        named = (
            row["task"],
            row["metric"],
            row["pooler"],
            ", ".join(filter(None, (row["calibration"], row.get("search")))) or "-",
            str(row["dim"]),
            str(row["n"]),
        )
        lines.append((*named, *cells, p, *cost))
    return "\n".join(lines_of(COLUMNS, lines))


main = command.main(parser, _evaluate, kind=EvaluateCommandOptions)

if __name__ == "__main__":
    sys.exit(main())
