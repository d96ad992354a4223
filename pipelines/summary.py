"""What a person reads when a run has ended."""

from typing import Any

from pipelines.progress import duration
from pipelines.resolve import Resolved
from transforms.store import layout, storage
from transforms.store.commit import Result


def print_summary(resolved: Resolved, result: Result) -> None:
    """The closing summary on stdout."""
    print("\n".join(summary(resolved, result)))


def summary(resolved: Resolved, result: Result) -> list[str]:
    """Rows and how they came by their vectors, speed, padding, losses, recall, paths; one fact a line."""
    n, root, job = result.ledger, resolved.job.root, resolved.job
    seconds = max(result.seconds, 1e-9)
    lines = [
        f"rows        {n['written']:,} written of {n['read']:,} read, {n['rejected']:,} rejected",
        f"work        {n['embedded']:,} embedded, {n['reused']:,} reused, {n['duplicates']:,} duplicates, "
        f"{n['carried']:,} carried",
        f"speed       {duration(result.seconds)}: {(n['written'] - n['carried']) / seconds:,.0f} rows/s, "
        f"{n['real'] / seconds:,.0f} tokens/s, padding {padding(n):.1f} %",
        f"truncated   {n['truncated_rows']:,} rows lost {n['lost']:,} tokens (limit {resolved.space.max_tokens})",
    ]
    lines += [f"{what:<11} {text}" for what, text in [*_anew(resolved), *_rare(result)]]
    lines += [f"index       {index_line(result.index)}"] if result.index else []
    lines += [f"store       {root} (snapshot {result.run})"]
    lines += [f"rejects     {storage.join(root, 'rejects')}"] if n["rejected"] else []
    return [*lines, f"manifest    {storage.join(job.root, layout.MANIFEST)}"]


def padding(ledger: dict[str, int]) -> float:
    """Padded tokens over real tokens, less one, in percent."""
    return 100 * (ledger["padded"] / ledger["real"] - 1) if ledger["real"] else 0.0


def _anew(resolved: Resolved) -> list[tuple[str, str]]:
    """What --reembed did to a store that had vectors."""
    previous, snapshot = resolved.previous, resolved.job.snapshot
    if previous is None or snapshot.generation == previous.data.get("generation", 0):
        return []
    fields = ", ".join(previous.space.differences(resolved.space))
    return [
        ("anew", f"everything was embedded anew, {f'in another space ({fields})' if fields else 'in the same space'}")
    ]


def _rare(result: Result) -> list[tuple[str, str]]:
    n, found = result.ledger, []
    if result.duplicate_ids:
        found.append(("ids", f"{result.duplicate_ids:,} rows have an id that an earlier row has"))
    if n["fallbacks"]:
        found.append(("fallbacks", f"{n['fallbacks']:,} rows had no token to count; all their tokens were"))
    if n["oom_splits"]:
        found.append(
            ("memory", f"{n['oom_splits']:,} batches were halved; a smaller --tokens-per-batch saves the retries")
        )
    if result.damaged:
        others = f" and {len(result.damaged) - 1:,} more" if len(result.damaged) > 1 else ""
        found.append(("damaged", f"{result.damaged[0]}{others}: missing or changed; such rows were embedded again"))
    return found


def index_line(index: dict[str, Any]) -> str:
    """Factory, size and measured recall of an index."""
    recall = index["recall"]
    if not recall:
        return f"{index['factory']}, {len(index['segments'])} segments (too few rows to measure recall)"
    below = f", below the target of {recall['target']:g}" if recall["value"] < recall["target"] else ""
    return (
        f"{index['factory']}, {len(index['segments'])} segments, recall@{recall['k']} {recall['value']:.4f} "
        f"({recall['low']:.4f} to {recall['high']:.4f}, {recall['queries']} queries){below}"
    )
