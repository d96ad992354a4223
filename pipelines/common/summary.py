"""The closing summary of a run, for a person."""

import contextlib
from collections.abc import Sequence
from typing import Any

from transforms import storage
from transforms.base.errors import SentenceBeamError
from transforms.base.lines import line
from transforms.base.measures import EMBED_PARTS
from transforms.base.numbers import counted
from transforms.base.nvidia import find_driver
from transforms.base.progress import duration
from transforms.corpus import match_inputs
from transforms.corpus.formats.registry import FORMATS, columns_of
from transforms.report.history import (
    RUNS_SEEN,
    RunSummary,
    known_summaries,
    recommended_answer_change,
)
from transforms.report.report import summary_of
from transforms.space.chunks import LATE_TOKENS
from transforms.steps.options.resolve import Resolved
from transforms.store import layout
from transforms.store.entries import ChangeEntry, IndexEntry, InputEntry, RecallEntry
from transforms.store.int8_models import kept_facts
from transforms.store.manifest import read_manifest
from transforms.store.runs.answers import causes_in_words
from transforms.store.runs.result import Result

BAD_FILES = 10  # so many are named in the summary
WHOLE_FILES = "if each file is one text, say --format file"
REASONS = 5  # why files are not taken: so many are told apart in a line


def summary(resolved: Resolved, result: Result) -> list[str]:
    """Return the lines about a run of `embed`, one fact a line."""
    before = None
    if resolved.previous is not None:
        before = resolved.previous.index
    return [
        *files_lines(result.input),
        rows_line(result.ledger),
        *_work_lines(resolved, result),
        *_trimmed_lines(resolved, result),
        *_noted(resolved, result),
        *moved_lines(result),
        *index_lines(result.index, before),
        *answer_lines(resolved.job.root, result),
        *_path_lines(resolved.job.root, result),
    ]


def _work_lines(resolved: Resolved, result: Result) -> list[str]:
    """The lines about what each row took, the speed, and tokens beyond the limit."""
    n = result.ledger
    things = things_of(n)
    of_pieces = ""
    if things == "pieces":
        of_pieces = " (pieces)"
    new = f"{n['embedded']:,} embedded, {n['reused']:,} reused"
    old = f"{n['duplicates']:,} duplicates, {n['carried']:,} carried"
    seconds = max(result.seconds, 1e-9)
    rows_s = f"{result.own_rows / seconds:,.0f} {things}/s"
    tokens_s = f"{result.tokens / seconds:,.0f} tokens/s"
    lost = f"{counted(n['truncated_rows'], things[:-1])} lost {counted(n['lost'], 'token')}"
    return [
        line("work", f"{new}, {old}{of_pieces}"),
        line(
            "speed",
            f"{duration(result.seconds)}: {rows_s}, {tokens_s}, padding {padding(n):.1f} %",
        ),
        line("truncated", f"{lost} (limit {resolved.space.max_tokens})"),
    ]


def _noted(resolved: Resolved, result: Result) -> list[str]:
    """The lines about what not every run has, in their order."""
    n = result.ledger
    found: list[tuple[str, str | None]] = []
    if n["unknown"]:
        found.append(("unknown", unknown_line(n)))
    found.append(("int8", int8_note(resolved)))
    found.append(("device", unseen_note(resolved, result)))
    found.append(("late", late_note(resolved)))
    if result.limit:
        found.append(("stages", stages_line(result)))
    if result.resumed:
        found.append(("resumed", resumed_line(result)))
    if result.previous and result.changes:
        found.append(("changes", changes_line(result.changes, things_of(n))))
    if result.checked and result.checked["shards"]:
        found.append(("checked", checked_line(result.checked)))
    deterministic = resolved.job.machine.deterministic
    found += [*_reembedded(resolved), *_rare(result, deterministic)]
    return [line(label, text) for label, text in found if text is not None]


def int8_note(resolved: Resolved) -> str | None:
    """The line about how near a quantised model is to float32; None for another dtype."""
    facts = kept_facts(resolved.job.root, resolved.space)
    if facts is None:
        return None
    return (
        f"cosine with float32 {facts.cosine:.4f}, at worst {facts.worst:.4f} (texts of the canary);"
        f" ranges fitted on {facts.texts:,} texts"
    )


def _path_lines(root: str, result: Result) -> list[str]:
    """The lines about the paths of the results, with the cost between them."""
    lines = [line("store", f"{root} (snapshot {result.run})")]
    if result.ledger["rejected"]:
        lines.append(line("rejects", storage.join(root, "rejects")))
    reported = summary_of(root, result.run)
    if reported and reported.spent is not None:
        lines.append(line("money", money_line(reported)))
    if reported:
        lines.append(line("report", storage.join(root, layout.PAGE)))
    return [*lines, line("manifest", storage.join(root, layout.MANIFEST))]


def files_lines(found: dict[str, Any] | None) -> list[str]:
    """The lines about the files of a run's input, and those beside them that are not taken."""
    if found is None:
        return []
    bad = found.get("bad", {})
    empty = ""
    if found["empty"]:
        empty = f", {found['empty']:,} of them empty"
    lines = [
        line("files", f"{found['files'] - len(bad):,} taken{empty}"),
        *beside_lines(found["beside"]),
    ]
    lines += [
        line("table", f"{name}, version {version}")
        for name, version in found.get("tables", {}).items()
    ]
    return [*lines, *bad_lines(bad)]


def bad_lines(bad: dict[str, str]) -> list[str]:
    """The lines about files that are left out, whose reasons are given by relative path."""
    lines = [line("bad file", reason) for reason in list(bad.values())[:BAD_FILES]]
    rest = len(bad) - BAD_FILES
    if rest > 0:
        return [*lines, line("bad files", f"{rest:,} more; result.json of the run lists them")]
    return lines


def _trimmed_lines(resolved: Resolved, result: Result) -> list[str]:
    """The line of a new store about blanks around column names in the first CSV file."""
    if resolved.previous is not None:
        return []
    manifest = read_manifest(resolved.job.root, result.run)
    if manifest is None:
        return []
    for entry in manifest.input.files:
        known = FORMATS.get(entry.format)
        if known is not None and known.has_header:
            names = ", ".join(f'"{name}"' for name in _trimmed_names(entry))
            if names:
                return [line("columns", f"blanks around names left out: {names}")]
            return []
    return []


def _trimmed_names(entry: InputEntry) -> Sequence[str]:
    """The names without blanks; none if the file is gone by now."""
    with contextlib.suppress(SentenceBeamError):
        (file,) = match_inputs(entry.source, entry.format)
        return columns_of(file).trimmed_names
    return ()


def beside_lines(beside: dict[str, int]) -> list[str]:
    """The line about files beside those of the input that are not taken, by reason, if any."""
    shown = [f"{count:,} {reason}" for reason, count in list(beside.items())[:REASONS]]
    rest = sum(list(beside.values())[REASONS:])
    if rest:
        shown += [f"{rest:,} others"]
    if shown:
        return [line("beside", f"not taken: {', '.join(shown)}")]
    return []


def moved_lines(result: Result) -> list[str]:
    """The line about the distance of a run's rows from those of the calibration's fit, if known."""
    found = result.moved
    if found is None:
        return []
    rows = f"{found['rows']:,.0f} rows of this run"
    text = (
        f"{found['distance']:.2f} deviations between the means of {rows} and of those that the"
        f" calibration was fitted on; a row lies {found['reach']:.2f} from that mean, not 1"
    )
    if found["distance"] > found["far"]:
        far = f"above {found['far']:g} they do not resemble them: fit it again, then recalibrate"
        text = f"{text}; {far}"
    return [line("fitted", text)]


def resumed_line(result: Result) -> str:
    """The number of units that unfinished runs had made already, and which runs these were."""
    done = sum(result.resumed.values())
    return (
        f"{done:,} of {result.made:,} units were finished by run"
        f" {', '.join(sorted(result.resumed))}"
    )


def unseen_note(resolved: Resolved, result: Result) -> str | None:
    """Return the line about a GPU of this machine that was not used; None if there is none.

    A torch without CUDA is a choice, and so is a GPU that the environment hides.
    """
    job = resolved.job
    if job.retried or job.machine.device != "auto" or result.devices != ["cpu"]:
        return None
    if find_driver() is None:
        return None
    import torch

    from transforms.encoder.devices import unseen_gpu

    if torch.version.cuda is None:
        return None
    reason = unseen_gpu()
    if reason is None:
        return None
    return f"the CPU did the work: {reason}"


def late_note(resolved: Resolved) -> str | None:
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


def unknown_line(ledger: dict[str, Any]) -> str:
    """The share of the texts' tokens that the model does not know."""
    tokens = ledger["known"] + ledger["unknown"]
    share = 100 * ledger["unknown"] / tokens
    return f"{share:.1f} % of {tokens:,} tokens stand for words that the model does not know"


def things_of(ledger: dict[str, Any]) -> str:
    """The name of what has a vector each: "rows", or "pieces" of documents."""
    if ledger.get("pieces") is None:
        return "rows"
    return "pieces"


def vectors_of(ledger: dict[str, Any]) -> str:
    """The number of rows, or of documents with that of their pieces."""
    if ledger.get("pieces") is None:
        return f"{ledger['written']:,}"
    return f"{ledger['written']:,} ({counted(ledger['pieces'], 'piece')})"


def rows_line(n: dict[str, Any]) -> str:
    """The line about the rows of the input, or the documents and their pieces."""
    counts = f"{n['written']:,} written of {n['read']:,} read, {n['rejected']:,} rejected"
    if things_of(n) == "rows":
        return line("rows", counts)
    return line("documents", f"{counts}, in {counted(n['pieces'], 'piece')}")


def changes_line(changes: dict[str, int], things: str = "rows") -> str:
    """The numbers of rows or pieces added, changed and deleted since the snapshot before."""
    added = counted(changes["added"], things[:-1])
    return f"{added} added, {changes['changed']:,} changed, {changes['deleted']:,} deleted"


def checked_line(checked: dict[str, int]) -> str:
    """The number of carried shards that were found as they were written, and how that was seen."""
    good = checked["shards"] - checked["damaged"]
    return (
        f"{good:,} of {checked['shards']:,} carried shards are sound: {checked['compared']:,} by"
        f" the checksum of a listing, {checked['read']:,} by reading them"
        f" ({checked['bytes'] / 1e6:,.1f} MB), the rest by size"
    )


def stages_line(result: Result) -> str:
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
    if told:
        return f"{told}; the limit is {result.limit}"
    return f"the limit is {result.limit}"


def money_line(run: RunSummary) -> str:
    """The cost of a run, and what embedding every row again would have cost more."""
    spent = f"{run.spent:,.2f}"
    if run.currency:
        spent = f"{spent} {run.currency}"
    spent = f"{spent} spent"
    if run.saved is not None:
        spent = f"{spent}, {run.saved:,.2f} saved"
    return f"{spent}, at {run.price_per_hour:g} an hour"


def padding(ledger: dict[str, int]) -> float:
    """Padded tokens over real tokens, less one, in percent."""
    if ledger["real"]:
        return 100 * (ledger["padded"] / ledger["real"] - 1)
    return 0.0


def _reembedded(resolved: Resolved) -> list[tuple[str, str]]:
    """The line about --reembed, if the store had vectors before."""
    previous = resolved.previous
    run = resolved.job.run
    if previous is None or run.generation == previous.generation:
        return []
    fields = ", ".join(previous.space.differences(resolved.space))
    space = "in the same space"
    if fields:
        space = f"in another space ({fields})"
    return [("anew", f"everything was embedded again, {space}")]


def _halved(batches: int, deterministic: bool) -> str:
    """The line about batches that were halved for lack of memory."""
    halved = f"{batches:,} batches were halved"
    if deterministic:
        return (
            f"{halved}; on a GPU the last bits of their vectors may differ from another run's,"
            " in spite of --deterministic"
        )
    return f"{halved}; a smaller --tokens-per-batch saves the retries"


def _rare(result: Result, deterministic: bool) -> list[tuple[str, str]]:
    n = result.ledger
    found = []
    if result.duplicate_ids:
        thing = "row"
        if things_of(n) == "pieces":
            thing = "document"
        ids = f"{result.duplicate_ids:,} {thing}s have an id that an earlier {thing} has"
        found.append(("ids", ids))
    if n["blank"]:
        blank = f"{n['blank']:,} of the rejected rows are blank lines; {WHOLE_FILES}"
        found.append(("blank", blank))
    if n["fallbacks"]:
        fallbacks = f"{n['fallbacks']:,} rows had no token to count; all their tokens were"
        found.append(("fallbacks", fallbacks))
    if n["oom_splits"]:
        found.append(("memory", _halved(n["oom_splits"], deterministic)))
    if result.damaged:
        others = ""
        if len(result.damaged) > 1:
            others = f" and {len(result.damaged) - 1:,} more"
        shards = f"{result.damaged[0]}{others}"
        found.append(("damaged", f"{shards}: missing or changed; such rows were embedded again"))
    return found


def index_lines(index: IndexEntry | None, before: IndexEntry | None) -> list[str]:
    """Return the lines about an index and its difference from the one `before`, if any."""
    if index is None:
        return []
    found = f"{index.factory}, {index.metric}, {len(index.segments)} segments"
    lines = [line("index", f"{found}{_recalls(index)}")]
    if index != before:
        lines += _change_lines(index)
    return lines


def answer_lines(root: str, result: Result) -> list[str]:
    """Return the lines about the answers to watched queries; none if nothing was compared."""
    found = result.watch
    if found is None:
        return []
    changed = (
        f"{100 * found['change']:.1f} % of {found['answers']:,} changed,"
        f" {100 * found['beyond']:.1f} % beyond growth"
    )
    causes = causes_in_words(found["causes"])
    if causes:
        changed = f"{changed}: {causes}"
    measures = (
        f"overlap@{found['k']} {found['overlap']:.3f}, rank-biased {found['rbo']:.3f}, first hit of"
        f" {100 * found['first_changed']:.1f} % of the queries changed"
    )
    lines = [line("answers", changed), line("overlap", measures)]
    judged = found["judged"]
    if judged is not None:
        lines.append(line("judged", _judged(found["k"], judged)))
    lines += [line("answers", note) for note in _answer_notes(root, found)]
    return lines


def _judged(k: int, judged: dict[str, Any]) -> str:
    change = judged["ndcg"] - judged["ndcg_before"]
    return (
        f"nDCG@{k} {judged['ndcg']:.3f} ({change:+.3f}, {judged['low']:+.3f} to"
        f" {judged['high']:+.3f}), recall@{k} {judged['recall']:.3f}, it was"
        f" {judged['recall_before']:.3f}; {counted(judged['queries'], 'query', 'queries')}"
    )


def _answer_notes(root: str, found: dict[str, Any]) -> list[str]:
    """Return how the answers were found if not by the index, and a gate if none is set."""
    notes = []
    if found["by_ids"]:
        notes.append("compared by ids and texts alone: the vectors before are of another space")
    if not found["indexed"] and found["rows"] < 1:
        part = f"{100 * found['rows']:g} % of the units"
        notes.append(f"the store has no index: exact search over {part}")
    elif not found["indexed"]:
        notes.append("the store has no index: exact search over all rows")
    current = read_manifest(root)
    if current is not None and current.options.max_answer_change is None:
        value = recommended_answer_change(known_summaries(root))
        if value is not None:
            notes.append(f"--max-answer-change {value:g} would fit the last {RUNS_SEEN} runs")
    return notes


def _recalls(index: IndexEntry) -> str:
    """The recall of an index, and by what it misses its targets."""
    found = index.recall
    text = " (too few rows to measure recall)"
    if found:
        text = _recall(found)
    if found and found.value < found.target:
        text += f", below the target of {found.target:g}"
    deep = index.recall_100
    if deep and deep.value < deep.target:
        text += f", recall@{deep.k} {deep.value:.4f} below {deep.target:g}"
    return text


def _change_lines(index: IndexEntry) -> list[str]:
    """The lines about how the index was made in this run."""
    change = index.change
    if change is None:
        return []
    if change.what == "trained":
        return _trained_lines(index, change)
    text = (
        f"{counted(change.added, 'row')} added, {change.deleted:,} deleted, {change.moved:,} moved"
    )
    if change.why:
        text += f"; {change.why}"
    if index.recall_changed:
        text += f"; of the rows added{_recall(index.recall_changed)[1:]}"
    return [line(change.what, text)]


def _trained_lines(index: IndexEntry, change: ChangeEntry) -> list[str]:
    """The lines about a new index: why its kind was chosen, and why it was trained again."""
    lines = []
    choice = index.choice
    if choice is not None and choice.tried:
        costs = f"{choice.row_bytes:,} bytes held a row, {choice.query_bytes:,} read a query"
        lines.append(line("chosen", f"{costs}: {choice.why}"))
    if change.why:
        lines.append(line("trained", f"anew: {change.why}"))
    return lines


def _recall(recall: RecallEntry) -> str:
    queries = counted(recall.queries, "query", "queries")
    return (
        f", recall@{recall.k} {recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f}, {queries})"
    )
