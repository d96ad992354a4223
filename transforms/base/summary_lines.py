"""The lines of a command's closing summary: a label, then one fact."""

LABEL = 12  # columns of a label


def format_summary_line(label: str, text: object) -> str:
    """Return a line of a summary; an empty label continues the line before.

    >>> line("rows", "1,000"), line("", "of them 2 empty")
    ('rows        1,000', '            of them 2 empty')
    """
    return f"{label:<{LABEL}}{text}"
