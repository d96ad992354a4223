"""The lines about an input and options that a run takes from a store."""

from typing import Any

from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.steps.options.likeness import Likeness
from sentence_beam.transforms.steps.options.resolve import Resolved

PATTERNS = 3  # so many of an input are named
LONGEST = 60  # characters of a value


def describe_origin(resolved: Resolved) -> list[str]:
    """Return the lines about what a run takes from its store, or from one that it is made like."""
    lines = []
    if resolved.takes_input:
        lines.append(
            format_summary_line(
                "input", f"{_name_patterns(resolved.job.run.globs)}, as in the last run"
            )
        )
    if resolved.likeness is not None:
        lines.append(format_summary_line("like", describe_likeness(resolved.likeness)))
    return lines


def describe_likeness(likeness: Likeness) -> str:
    """Return the line about a store that another one was made like."""
    if not likeness.exists:
        return f"{likeness.store} holds no store any more; --like can be left out"
    then = "there" if likeness.begins else "then"
    different = [
        f"{flag} {_show_value(one)} ({then} {_show_value(other)})"
        for flag, (one, other) in likeness.different.items()
    ]
    differing = ", ".join(different) or "nothing"
    if not likeness.begins:
        unchanged = "; this store stays as it is" if different else ""
        return f"{likeness.store}; different there since: {differing}{unchanged}"
    taken = ", ".join(likeness.taken) or "defaults alone"
    return f"{likeness.store}; taken: {taken}; different: {differing}"


def _name_patterns(globs: tuple[str, ...]) -> str:
    more = f" and {len(globs) - PATTERNS:,} more" if len(globs) > PATTERNS else ""
    return ", ".join(globs[:PATTERNS]) + more


def _show_value(value: Any) -> str:
    """Return the value of an option as a person may give it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        text = ",".join(map(str, value)) or "none"
    else:
        text = str(value) or "''"
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}..."
    return text
