"""`sentence-beam forget`: erases rows from every file of a store, and writes a receipt."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.base.lines import line
from sentence_beam.transforms.base.numbers import counted
from sentence_beam.transforms.steps.forget.erase import erase, find_rows, finish_unfinished
from sentence_beam.transforms.steps.forget.erasure import Erasure
from sentence_beam.transforms.steps.forget.fits import fits_of
from sentence_beam.transforms.steps.forget.record import read_unfinished
from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.steps.options.store import ForgetOptions
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.forgetting.hashes import read_key
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.runs.run_ids import new_run

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

COMMAND = "forget"
REFIT = "--refit"


def parser() -> argparse.ArgumentParser:
    """The options of `forget`."""
    return options.command(
        COMMAND,
        "Erase rows from every file of a store and its snapshots, and write a receipt.",
        "sentence-beam forget --store store --id user-17 --reason 'request 4711'",
        "sentence-beam forget --store store --where \"user = 'u-17'\" --dry-run",
        kind=ForgetOptions,
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[Any, ...]:
    """Parse our options, and Beam's if something is to be fitted; only then Beam is loaded."""
    if REFIT not in argv:
        return (*command.own_flags(parser, argv), None)
    from sentence_beam.pipelines.common import beam_flags

    return beam_flags.parse(parser, argv)


def _forget(options: ForgetOptions, beam_options: "PipelineOptions | None") -> CommandOutput:
    root = open_store(options.store).root
    if options.dry_run:
        lease.check(root, command=COMMAND)
        return _listed(find_rows(root, _request(options)), options.refit)
    if beam_options is None:
        return _rows_erased(root, options)
    from sentence_beam.pipelines.common.refit import check_engine

    check_engine(root, beam_options)
    return _fitted_again(root, _rows_erased(root, options), options.drop_history, beam_options)


def _rows_erased(root: str, options: ForgetOptions) -> CommandOutput:
    """Erase the rows, or bring an erasure that was interrupted to its end."""
    request = _request(options)
    with _leased(root) as run:
        earlier = finish_unfinished(root)
        erasure = find_rows(root, request)
        if erasure.is_empty:
            return _nothing_left(root, earlier)
        receipt = erase(root, run, erasure)
    return _erased(root, receipt)


def _fitted_again(
    root: str, said: CommandOutput, drop_history: bool, beam_options: "PipelineOptions"
) -> CommandOutput:
    """Fit again what erased rows took part in; return the message with what came of it.

    Rows stay erased if the fit fails.
    """
    from sentence_beam.pipelines.common.refit import refit

    try:
        receipt = refit(root, beam_options, drop_history)
    except SentenceBeamError as error:
        problem = Problem.of(error)
        message = f"the rows are erased, but fitting again failed: {problem.message}"
        return replace(said, error=said.error or Problem(message, problem.exit_code).error())
    if receipt is None:
        lines = [line("refit", "nothing: no erased row took part in a fit of the store")]
        return replace(said, lines=[*said.lines, *lines])
    lines = [one for one in said.lines if not one.startswith("remains ")]
    lines += [line("refit", text) for text in receipt["fitted_again"] or ["nothing is left"]]
    lines += [line("remains", text) for text in receipt["statistics"]]
    lines.append(line("receipt", storage.join(root, layout.receipt(receipt["run"]))))
    lines.append(line("store", f"{root} (snapshot {receipt['snapshot']})"))
    return replace(said, lines=lines, values={**said.values, "refit": receipt})


@contextlib.contextmanager
def _leased(root: str) -> Iterator[str]:
    """Hold the store's lease; if the erasure has begun and fails, only `forget` may take it."""
    run = new_run(root)
    own = Lease.of_this_process(run, "none", COMMAND, in_process=True)
    own = lease.for_command(own, COMMAND)
    try:
        lease.acquire(root, own)
    except OSError as error:
        raise OptionError(
            f"--store {root} cannot be written ({error.strerror or error}); choose another"
        ) from error
    try:
        with lease.kept_alive(root, run):
            yield run
    except OSError as error:
        raise SentenceBeamError(
            f"{error.filename or root}: {error.strerror or error}; make the store writable and run"
            " forget again, which goes on"
        ) from error
    finally:
        if _is_unfinished(root):
            lease.leave(root, run)
        else:
            lease.release(root, run)


def _is_unfinished(root: str) -> bool:
    """Whether an erasure has to be brought to its end, as far as the store can be read."""
    try:
        return read_unfinished(root) is not None
    except Exception:
        return True


def _request(options: ForgetOptions) -> ForgetRequest:
    ids = list(options.id)
    if options.ids is not None:
        text = storage.read_text(options.ids, "--ids")
        ids += [name for name in storage.lines_of(text) if name]
    return ForgetRequest(
        ids=tuple(dict.fromkeys(ids)),
        where=options.where,
        documents=options.documents,
        missing_ok=options.missing_ok,
        max_deletes=options.max_deletes,
        drop_history=options.drop_history,
        reason=options.reason,
        key=read_key(options.key) if options.key else None,
    )


def _listed(erasure: Erasure, refit: bool) -> CommandOutput:
    """Return the message of `--dry-run`."""
    found = erasure.selection
    shards = len(found.masks)
    values = {
        "store": erasure.current.root,
        "rows": found.rows,
        "shards": shards,
        "snapshots": [one.run for one in erasure.snapshots],
        "dropped": list(erasure.dropped),
    }
    lines = [
        line("rows", f"{counted(found.rows, 'row')} of the current snapshot would be erased"),
        line("shards", f"{counted(shards, 'shard')} would be written again"),
    ]
    if refit:
        lines += [line("refit", text) for text in _fits(erasure.current)]
    return CommandOutput(lines, {**values, "erased": False})


def _fits(current: Manifest) -> list[str]:
    """Return what would be fitted again, with the rows that it was fitted on."""
    return list(fits_of([current]).values()) or ["nothing: the store has no fit"]


def _snapshots(values: dict[str, Any]) -> str:
    return counted(len(values["snapshots"]), "snapshot")


def _nothing_left(root: str, earlier: dict[str, Any] | None) -> CommandOutput:
    """Return the message if the store has nothing of the rows any more."""
    if earlier is not None:
        return _erased(root, earlier)
    text = "nothing of these rows is left; they were erased before"
    return CommandOutput([line("rows", text)], {"store": root, "rows": 0, "erased": False})


def _erased(root: str, receipt: dict[str, Any]) -> CommandOutput:
    """Return the message about an erasure; lost rows of damaged shards are an error behind it."""
    path = storage.join(root, layout.receipt(receipt["run"]))
    rewritten = len(receipt["rewritten"])
    lines = [
        line("rows", f"{receipt['rows']:,} erased"),
        line(
            "files",
            f"{rewritten:,} written again in {_snapshots(receipt)}, {receipt['removed']:,} removed",
        ),
    ]
    if receipt["dropped"]:
        lines.append(line("snapshots", f"{len(receipt['dropped']):,} removed"))
    if "watch" in receipt:
        watch = receipt["watch"]
        answers = counted(watch["answers"], "answer")
        queries = counted(watch["queries"], "watched query", "watched queries")
        lines.append(line("answers", f"{answers} erased, and {queries}"))
    lines += [line("remains", text) for text in receipt["statistics"]]
    lines.append(line("receipt", path))
    lines.append(line("store", f"{root} (snapshot {receipt['run']})"))
    error = None
    if receipt["lost"]:
        rows = sum(one["rows"] for one in receipt["lost"])
        shards = ", ".join(one["path"] for one in receipt["lost"])
        error = SentenceBeamError(
            f"{root}: {counted(rows, 'row')} of damaged shards could not be read, and are rejected"
            f" now ({shards}); embed --reembed makes them again from the input"
        )
    return CommandOutput(lines, {"store": root, "erased": True, **receipt}, error=error)


def _called(options: ForgetOptions) -> CommandOutput:
    """Erase rows from Python; Beam is loaded only if something is to be fitted."""
    if not options.refit:
        return _forget(options, None)
    from sentence_beam.pipelines.common.beam_flags import options_of_list

    return _forget(options, options_of_list(options.beam_flags))


forget = function(COMMAND, ForgetOptions, _called)
main = command.main(parser, _forget, parse, kind=ForgetOptions)

if __name__ == "__main__":
    sys.exit(main())
