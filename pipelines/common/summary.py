"""The closing summary of a run, for a person."""

from typing import Any

from sentence_beam.pipelines.common.index_lines import describe_answers, describe_index
from sentence_beam.pipelines.common.input_lines import (
    describe_columns,
    describe_headers,
    describe_input,
    describe_types,
)
from sentence_beam.pipelines.common.origin_lines import describe_origin
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.measures import EMBED_PARTS
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.nvidia import find_driver
from sentence_beam.transforms.base.progress import format_duration
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.report.snapshot_section import describe_pending, describe_prompts
from sentence_beam.transforms.report.store_report import find_summary
from sentence_beam.transforms.space.chunks_spec import LATE_TOKENS
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.counts import NONE_PENDING
from sentence_beam.transforms.store.int8_models import read_kept_facts
from sentence_beam.transforms.store.runs.run_result import Result

WHOLE_FILES = "if each file is one text, say --format file"


def summarise(resolved: Resolved, result: Result) -> list[str]:
    """Return the lines about a run of `embed`, one fact a line."""
    before = resolved.previous.index if resolved.previous is not None else None
    return [
        *describe_origin(resolved),
        *describe_input(result.input, result.pending.files if result.pending else 0),
        *describe_columns(resolved.found_columns),
        *describe_budget(result),
        describe_rows(result.ledger),
        *_describe_work(resolved, result),
        *describe_headers(resolved, result),
        *describe_types(resolved.job.root, result),
        *_note_details(resolved, result),
        *describe_moved(result),
        *describe_index(result.index, before),
        *describe_answers(resolved.job.root, result),
        *_list_paths(resolved.job.root, result),
    ]


def describe_budget(result: Result) -> list[str]:
    """The lines about the budget, what was embedded of it, and the files that are left."""
    lines = []
    left = describe_pending(result.pending or NONE_PENDING)
    budget = result.budget
    if budget is not None:
        lines.append(
            format_summary_line(
                "budget",
                f"{budget['tokens']:,} tokens: {budget['expected']:,} expected,"
                f" {result.ledger['real']:,} embedded",
            )
        )
        if left:
            left = f"{left}: {format_count(budget['runs'], 'more run', 'more runs')} of this budget"
    if left:
        lines.append(format_summary_line("pending", left))
    return lines


def _describe_work(resolved: Resolved, result: Result) -> list[str]:
    """The lines about what each row took, the speed, and tokens beyond the limit."""
    n = result.ledger
    things = name_things(n)
    of_pieces = " (pieces)" if things == "pieces" else ""
    new = f"{n['embedded']:,} embedded, {n['reused']:,} reused"
    old = f"{n['duplicates']:,} duplicates, {n['carried']:,} carried"
    seconds = max(result.seconds, 1e-9)
    rows_s = f"{result.own_rows / seconds:,.0f} {things}/s"
    tokens_s = f"{result.tokens / seconds:,.0f} tokens/s"
    lost = (
        f"{format_count(n['truncated_rows'], things[:-1])} lost {format_count(n['lost'], 'token')}"
    )
    return [
        format_summary_line("work", f"{new}, {old}{of_pieces}"),
        format_summary_line(
            "speed",
            f"{format_duration(result.seconds)}: {rows_s}, {tokens_s}, padding {padding(n):.1f} %",
        ),
        format_summary_line("truncated", f"{lost} (limit {resolved.space.max_tokens})"),
    ]


def _note_details(resolved: Resolved, result: Result) -> list[str]:
    """The lines about what not every run has, in their order."""
    n = result.ledger
    noted: list[tuple[str, str | None]] = [("prompts", describe_prompts_of_run(resolved))]
    if n["unknown"]:
        noted.append(("unknown", describe_unknown(n)))
    noted.append(("int8", describe_int8(resolved)))
    noted.append(("device", explain_unseen(resolved, result)))
    noted.append(("late", warn_of_late(resolved)))
    if result.limit:
        noted.append(("stages", describe_stages(result)))
    if result.resumed:
        noted.append(("resumed", describe_resumed(result)))
    if result.previous and result.changes:
        noted.append(("changes", describe_changes(result.changes, name_things(n))))
    if result.checked and result.checked["shards"]:
        noted.append(("checked", describe_checked(result.checked)))
    deterministic = resolved.job.machine.deterministic
    noted += [*_note_reembedded(resolved), *_note_rare(result, deterministic)]
    return [format_summary_line(label, text) for label, text in noted if text is not None]


def describe_prompts_of_run(resolved: Resolved) -> str | None:
    """Return the line about the prompts of rows and queries; None if the model has none."""
    run = resolved.job.run
    told = describe_prompts(run.space.prompt, run.options.query_prompt)
    advice = advise_prompts(resolved)
    if advice is None:
        return told or None
    return f"{told or 'rows none, queries none'}; {advice}"


def advise_prompts(resolved: Resolved) -> str | None:
    """Return what is said about prompts that the model has or was trained with, but does not get.

    It ends with the options that give them, and those that say that none is wanted.
    """
    name = resolved.passed_over
    if name is not None:
        return (
            f"the model's prompt {name!r} is not used: say --prompt-name {name} to put it before"
            " rows, or --prompt ''"
        )
    missing = resolved.missing
    if missing is None:
        return None
    none = "--query-prompt ''" if resolved.space.prompt else "--prompt ''"
    return f"{missing.request()}: say {missing.options}, or {none} if none is wanted"


def describe_int8(resolved: Resolved) -> str | None:
    """The line about how near a quantised model is to float32; None for another dtype."""
    facts = read_kept_facts(resolved.job.root, resolved.space)
    if facts is None:
        return None
    return (
        f"cosine with float32 {facts.cosine:.4f}, at worst {facts.worst:.4f} (texts of the canary);"
        f" ranges fitted on {facts.texts:,} texts"
    )


def _list_paths(root: str, result: Result) -> list[str]:
    """The lines about the paths of the results."""
    lines = [format_summary_line("store", f"{root} (snapshot {result.run})")]
    if result.ledger["rejected"]:
        lines.append(format_summary_line("rejects", storage.join(root, "rejects")))
    if find_summary(root, result.run) is not None:
        lines.append(format_summary_line("report", storage.join(root, layout.PAGE)))
    return [*lines, format_summary_line("manifest", storage.join(root, layout.MANIFEST))]


def describe_moved(result: Result) -> list[str]:
    """The line about the distance of a run's rows from those of the calibration's fit, if known."""
    moved = result.moved
    if moved is None:
        return []
    rows = f"{moved['rows']:,.0f} rows of this run"
    text = (
        f"{moved['distance']:.2f} deviations between the means of {rows} and of those that the"
        f" calibration was fitted on; a row lies {moved['reach']:.2f} from that mean, not 1"
    )
    if moved["distance"] > moved["far"]:
        far = f"above {moved['far']:g} they do not resemble them: fit it again, then recalibrate"
        text = f"{text}; {far}"
    return [format_summary_line("fitted", text)]


def describe_resumed(result: Result) -> str:
    """The number of units that unfinished runs had made already, and which runs these were."""
    done = sum(result.resumed.values())
    return (
        f"{done:,} of {result.made:,} units were finished by run"
        f" {', '.join(sorted(result.resumed))}"
    )


def explain_unseen(resolved: Resolved, result: Result) -> str | None:
    """Return the line about a GPU of this machine that was not used; None if there is none.

    A torch without CUDA is a choice, and so is a GPU that the environment hides.
    """
    job = resolved.job
    if job.retried or job.machine.device != "auto" or result.devices != ["cpu"]:
        return None
    if find_driver() is None:
        return None
    import torch

    from sentence_beam.transforms.encoder.devices import explain_unseen_gpu

    if torch.version.cuda is None:
        return None
    reason = explain_unseen_gpu()
    return None if reason is None else f"the CPU did the work: {reason}"


def warn_of_late(resolved: Resolved) -> str | None:
    """Return a warning if a window of late chunking holds no more than a piece, else None."""
    chunks = resolved.job.chunks
    limit = resolved.space.max_tokens
    window = min((n for n in (chunks.window, limit) if n is not None), default=None)
    if chunks.kind != "late" or window is None or window > (chunks.tokens or LATE_TOKENS):
        return None
    return (
        f"windows of {window} tokens hold no more than a piece, which knows nothing around it; see"
        " --chunks budget"
    )


def describe_unknown(ledger: dict[str, Any]) -> str:
    """The share of the texts' tokens that the model does not know."""
    tokens = ledger["known"] + ledger["unknown"]
    share = 100 * ledger["unknown"] / tokens
    return f"{share:.1f} % of {tokens:,} tokens stand for words that the model does not know"


def name_things(ledger: dict[str, Any]) -> str:
    """The name of what has a vector each: "rows", or "pieces" of documents."""
    return "rows" if ledger.get("pieces") is None else "pieces"


def count_vectors(ledger: dict[str, Any]) -> str:
    """The number of rows, or of documents with that of their pieces."""
    if ledger.get("pieces") is None:
        return f"{ledger['written']:,}"
    return f"{ledger['written']:,} ({format_count(ledger['pieces'], 'piece')})"


def describe_rows(n: dict[str, Any]) -> str:
    """The line about the rows of the input, or the documents and their pieces."""
    counts = f"{n['written']:,} written of {n['read']:,} read, {n['rejected']:,} rejected"
    if name_things(n) == "rows":
        return format_summary_line("rows", counts)
    return format_summary_line("documents", f"{counts}, in {format_count(n['pieces'], 'piece')}")


def describe_changes(changes: dict[str, int], things: str) -> str:
    """The numbers of rows or pieces added, changed and deleted since the snapshot before."""
    added = format_count(changes["added"], things[:-1])
    return f"{added} added, {changes['changed']:,} changed, {changes['deleted']:,} deleted"


def describe_checked(checked: dict[str, int]) -> str:
    """The number of carried shards that were found as they were written, and how that was seen."""
    good = checked["shards"] - checked["damaged"]
    return (
        f"{good:,} of {checked['shards']:,} carried shards are sound: {checked['compared']:,} by"
        f" the checksum of a listing, {checked['read']:,} by reading them"
        f" ({checked['bytes'] / 1e6:,.1f} MB), the rest by size"
    )


def describe_stages(result: Result) -> str:
    """The seconds of each part of Embed, summed over its units, its devices, and its limit."""
    embed = (result.measures or {})["embed"]
    times = {
        name.removesuffix("_ms"): embed[name]["sum"] / 1000 for name in EMBED_PARTS if name in embed
    }
    told = ", ".join(
        f"{name} {seconds:,.1f}s" for name, seconds in times.items() if seconds >= 0.05
    )
    if result.devices:
        told = f"{told} on {', '.join(result.devices)}".strip()
    limit = f"the limit is {result.limit}"
    return f"{told}; {limit}" if told else limit


def padding(ledger: dict[str, int]) -> float:
    """Padded tokens over real tokens, less one, in percent."""
    return 100 * (ledger["padded"] / ledger["real"] - 1) if ledger["real"] else 0.0


def _note_reembedded(resolved: Resolved) -> list[tuple[str, str]]:
    """The line about --reembed, if the store had vectors before."""
    previous = resolved.previous
    run = resolved.job.run
    if previous is None or run.generation == previous.generation:
        return []
    fields = ", ".join(previous.space.differences(resolved.space))
    space = f"in another space ({fields})" if fields else "in the same space"
    return [("anew", f"everything was embedded again, {space}")]


def _explain_halved(batches: int, deterministic: bool) -> str:
    """The line about batches that were halved for lack of memory."""
    halved = f"{batches:,} batches were halved"
    if deterministic:
        return (
            f"{halved}; on a GPU the last bits of their vectors may differ from another run's,"
            " in spite of --deterministic"
        )
    return f"{halved}; a smaller --tokens-per-batch saves the retries"


def _note_rare(result: Result, deterministic: bool) -> list[tuple[str, str]]:
    n = result.ledger
    notes = []
    if result.duplicate_ids:
        thing = "document" if name_things(n) == "pieces" else "row"
        ids = f"{result.duplicate_ids:,} {thing}s have an id that an earlier {thing} has"
        notes.append(("ids", ids))
    if n["blank"]:
        blank = f"{n['blank']:,} of the rejected rows are blank lines; {WHOLE_FILES}"
        notes.append(("blank", blank))
    if n.get("forgotten"):
        erased = f"{n['forgotten']:,} of the rejected rows were erased from the store before"
        notes.append(("erased", erased))
    if n["fallbacks"]:
        fallbacks = f"{n['fallbacks']:,} rows had no token to count; all their tokens were"
        notes.append(("fallbacks", fallbacks))
    if n["oom_splits"]:
        notes.append(("memory", _explain_halved(n["oom_splits"], deterministic)))
    if result.damaged:
        others = f" and {len(result.damaged) - 1:,} more" if len(result.damaged) > 1 else ""
        shards = f"{result.damaged[0]}{others}"
        notes.append(("damaged", f"{shards}: missing or changed; such rows were embedded again"))
    return notes
