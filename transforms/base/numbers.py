"""Numbers as people read them: counts with their noun, tokens, and bytes."""


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, whose plural ends in "s" unless it is given.

    >>> format_count(1, "row"), format_count(12_345, "row"), format_count(2, "entry", "entries")
    ('1 row', '12,345 rows', '2 entries')
    """
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def format_amount(size: int) -> str:
    """Return a number of bytes in short.

    >>> format_amount(1), format_amount(812), format_amount(12_345), format_amount(4_100_000_000)
    ('1 byte', '812 bytes', '12.3 kB', '4.1 GB')
    """
    if size < 1000:
        return format_count(size, "byte")
    power = min((len(str(size)) - 1) // 3, 4)
    return f"{size / 1000**power:,.1f} {'kMGT'[power - 1]}B"


def format_tokens(tokens: float) -> str:
    """Return a number of tokens in short, with the letters of `--budget`.

    >>> format_tokens(1), format_tokens(12_345), format_tokens(2_000_000_000)
    ('1 token', '12,345 tokens', '2.0 B tokens')
    """
    for least, letter in ((1e9, "B"), (1e6, "M")):
        if tokens >= least:
            return f"{tokens / least:,.1f} {letter} tokens"
    return format_count(round(tokens), "token")
