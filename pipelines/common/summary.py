"""The closing summary of a run, for a person."""

import contextlib
from typing import Any

from transforms import storage
from transforms.base.errors import SentenceBeamError
from transforms.base.measures import EMBED_PARTS
from transforms.base.numbers import counted
from transforms.base.progress import duration
from transforms.corpus import match_inputs
from transforms.corpus.formats.registry import FORMATS, columns_of
from transforms.report.history import RunSummary
from transforms.report.report import summary_of
from transforms.space.chunks import LATE_TOKENS
from transforms.steps.options.resolve import Resolved
from transforms.store import layout
from transforms.store.entries import IndexEntry, RecallEntry
from transforms.store.manifest import read_manifest
from transforms.store.runs.result import Result

BAD_FILES = 10  # so many are named in the summary
WHOLE_FILES = "if each file is one text, say --format file"
REASONS = 5  # why files are not taken: so many are told apart in a line


def summary(resolved: Resolved, result: Result) -> list[str]:
    """The lines about a run of `embed`, one fact a line: rows, work, speed, losses, changes,
    recall, paths.
    """
    n = result.ledger
    root = resolved.job.root
    job = resolved.job
    seconds = max(result.seconds, 1e-9)
    things = things_of(n)
    lines = [
        *files_lines(result.input),
        rows_line(n),
        (
            f"work        {n['embedded']:,} embedded, {n['reused']:,} reused, {n['duplicates']:,}"
            f" duplicates, {n['carried']:,} carried{'' if things == 'rows' else ' (pieces)'}"
        ),
        (
            f"speed       {duration(result.seconds)}: {result.own_rows / seconds:,.0f} {things}/s, "
            f"{result.tokens / seconds:,.0f} tokens/s, padding {padding(n):.1f} %"
        ),
        (
            f"truncated   {counted(n['truncated_rows'], things[:-1])} lost"
            f" {counted(n['lost'], 'token')} (limit {resolved.space.max_tokens})"
        ),
    ]
    if resolved.previous is None:
        lines += trimmed_lines(root, result.run)
    if n["unknown"]:
        lines += [f"unknown     {unknown_line(n)}"]
    if note := late_note(resolved):
        lines += [f"late        {note}"]
    if result.limit:
        lines += [f"stages      {stages_line(result)}"]
    if result.resumed:
        lines += [f"resumed     {resumed_line(result)}"]
    if result.previous and result.changes:
        lines += [f"changes     {changes_line(result.changes, things)}"]
    if result.checked and result.checked["shards"]:
        lines += [f"checked     {checked_line(result.checked)}"]
    lines += [f"{what:<11} {text}" for what, text in [*_reembedded(resolved), *_rare(result)]]
    lines += moved_lines(result)
    lines += index_lines(result.index, resolved.previous.index if resolved.previous else None)
    lines += [f"store       {root} (snapshot {result.run})"]
    if n["rejected"]:
        lines += [f"rejects     {storage.join(root, 'rejects')}"]
    reported = summary_of(root, result.run)
    if reported and reported.spent is not None:
        lines += [f"money       {money_line(reported)}"]
    if reported:
        lines += [f"report      {storage.join(root, layout.PAGE)}"]
    return [*lines, f"manifest    {storage.join(job.root, layout.MANIFEST)}"]


def files_lines(found: dict[str, Any] | None) -> list[str]:
    """The lines about the files of a run's input, and those beside them that are not taken."""
    if found is None:
        return []
    bad = found.get("bad", {})
    empty = ""
    if found["empty"]:
        empty = f", {found['empty']:,} of them empty"
    lines = [
        f"files       {found['files'] - len(bad):,} taken{empty}",
        *beside_lines(found["beside"]),
    ]
    lines += [
        f"table       {name}, version {version}"
        for name, version in found.get("tables", {}).items()
    ]
    return [*lines, *bad_lines(bad)]


def bad_lines(bad: dict[str, str]) -> list[str]:
    """The lines about files that are left out, whose reasons are given by relative path."""
    lines = [f"bad file    {reason}" for reason in list(bad.values())[:BAD_FILES]]
    rest = len(bad) - BAD_FILES
    if rest > 0:
        return [*lines, f"bad files   {rest:,} more; result.json of the run lists them"]
    return lines


def trimmed_lines(root: str, run: str) -> list[str]:
    """The line about names of columns without the blanks around them, by the first CSV file of a
    snapshot's input.
    """
    manifest = read_manifest(root, run)
    files = manifest.input.files if manifest is not None else ()
    for entry in files:
        known = FORMATS.get(entry.format)
        if known is not None and known.has_header:
            with contextlib.suppress(SentenceBeamError):  # the file may be gone by now
                (file,) = match_inputs(entry.source, entry.format)
                names = ", ".join(f'"{name}"' for name in columns_of(file).trimmed_names)
                if names:
                    return [f"columns     blanks around names left out: {names}"]
                return []
            return []
    return []


def beside_lines(beside: dict[str, int]) -> list[str]:
    """The line about files that lie beside those of the input and are not taken, by reason; none
    where all are.
    """
    shown = [f"{count:,} {reason}" for reason, count in list(beside.items())[:REASONS]]
    rest = sum(list(beside.values())[REASONS:])
    if rest:
        shown += [f"{rest:,} others"]
    if shown:
        return [f"beside      not taken: {', '.join(shown)}"]
    return []


def moved_lines(result: Result) -> list[str]:
    """The line about how far a run's rows lie from those that its calibration was fitted on; none
    where unknown.
    """
    found = result.moved
    if found is None:
        return []
    text = (
        f"{found['distance']:.2f} deviations between the means of {found['rows']:,.0f} rows of this"
        " run and of "
    )
    text += (
        f"those that the calibration was fitted on; a row lies {found['reach']:.2f} from that mean,"
        " not 1"
    )
    far = f"; above {found['far']:g} they do not resemble them: fit it anew, then recalibrate"
    return [f"fitted      {text}{far if found['distance'] > found['far'] else ''}"]


def resumed_line(result: Result) -> str:
    """The number of units that unfinished runs had made already, and which runs these were."""
    done = sum(result.resumed.values())
    return (
        f"{done:,} of {result.made:,} units were finished by run"
        f" {', '.join(sorted(result.resumed))}"
    )


def late_note(resolved: Resolved) -> str | None:
    """What is to be said of late chunking by a model that takes no more than a piece; None where
    nothing is.
    """
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
    """The name of what has a vector each: rows, or pieces of documents."""
    return "rows" if ledger.get("pieces") is None else "pieces"


def vectors_of(ledger: dict[str, Any]) -> str:
    """The number of rows, of documents with that of their pieces."""
    if ledger.get("pieces") is None:
        pieces = ""
    else:
        pieces = f" ({counted(ledger['pieces'], 'piece')})"
    return f"{ledger['written']:,}{pieces}"


def rows_line(n: dict[str, Any]) -> str:
    """The line about the rows of the input, or the documents, with the pieces that they were cut
    into.
    """
    counts = f"{n['written']:,} written of {n['read']:,} read, {n['rejected']:,} rejected"
    if things_of(n) == "rows":
        return f"rows        {counts}"
    return f"documents   {counts}, in {counted(n['pieces'], 'piece')}"


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
    """The seconds that each part of Embed took, summed over its units, and which of them held up
    the others.
    """
    embed = (result.measures or {})["embed"]
    times = {
        name.removesuffix("_ms"): embed[name]["sum"] / 1000 for name in EMBED_PARTS if name in embed
    }
    told = ", ".join(
        f"{name} {seconds:,.1f}s" for name, seconds in times.items() if seconds >= 0.05
    )
    if told:
        return f"{told}; the limit is {result.limit}"
    return f"the limit is {result.limit}"


def money_line(run: RunSummary) -> str:
    """The cost of a run, and what embedding every row again would have cost more."""
    saved = "" if run.saved is None else f", {run.saved:,.2f} saved"
    currency = f" {run.currency}" if run.currency else ""
    return f"{run.spent:,.2f}{currency} spent{saved}, at {run.price_per_hour:g} an hour"


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
    return [
        (
            "anew",
            (
                "everything was embedded anew,"
                f" {f'in another space ({fields})' if fields else 'in the same space'}"
            ),
        )
    ]


def _rare(result: Result) -> list[tuple[str, str]]:
    n = result.ledger
    found = []
    if result.duplicate_ids:
        what = "row" if things_of(n) == "rows" else "document"
        found.append(
            ("ids", f"{result.duplicate_ids:,} {what}s have an id that an earlier {what} has")
        )
    if n["blank"]:
        found.append(
            ("blank", f"{n['blank']:,} of the rejected rows are blank lines; {WHOLE_FILES}")
        )
    if n["fallbacks"]:
        found.append(
            ("fallbacks", f"{n['fallbacks']:,} rows had no token to count; all their tokens were")
        )
    if n["oom_splits"]:
        found.append(
            (
                "memory",
                (
                    f"{n['oom_splits']:,} batches were halved; a smaller --tokens-per-batch saves"
                    " the retries"
                ),
            )
        )
    if result.damaged:
        others = ""
        if len(result.damaged) > 1:
            others = f" and {len(result.damaged) - 1:,} more"
        found.append(
            (
                "damaged",
                f"{result.damaged[0]}{others}: missing or changed; such rows were embedded again",
            )
        )
    return found


def index_lines(index: IndexEntry | None, before: IndexEntry | None) -> list[str]:
    """The lines about an index: what it is, and how it was made of the one `before`; none without
    an index.
    """
    if index is None:
        return []
    found = index.recall
    change = index.change
    lines = [f"index       {index.factory}, {index.metric}, {len(index.segments)} segments"]
    if found:
        lines[0] += _recall(found)
    else:
        lines[0] += " (too few rows to measure recall)"
    if found and found.value < found.target:
        lines[0] += f", below the target of {found.target:g}"
    deep = index.recall_100
    if deep and deep.value < deep.target:
        lines[0] += f", recall@{deep.k} {deep.value:.4f} below {deep.target:g}"
    if index == before or change is None:
        return lines
    if index.choice is not None and index.choice.tried and change.what == "trained":
        costs = (
            f"{index.choice.row_bytes:,} bytes held a row, {index.choice.query_bytes:,} read a"
            " query"
        )
        lines.append(f"chosen      {costs}: {index.choice.why}")
    if change.what == "trained":
        if change.why:
            return [*lines, f"trained     anew: {change.why}"]
        return lines
    rows = (
        f"{counted(change.added, 'row')} added, {change.deleted:,} deleted, {change.moved:,} moved"
    )
    why = f"; {change.why}" if change.why else ""
    again = ""
    if index.recall_changed:
        again = f"; of the rows added{_recall(index.recall_changed)[1:]}"
    return [*lines, f"{change.what:<11} {rows}{why}{again}"]


def _recall(recall: RecallEntry) -> str:
    queries = counted(recall.queries, "query", "queries")
    return (
        f", recall@{recall.k} {recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f}, {queries})"
    )
