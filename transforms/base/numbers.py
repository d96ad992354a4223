"""Numbers as people read them: counts with their noun, tokens, and bytes."""


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, whose plural ends in "s" unless it is given.

    >>> counted(1, "row"), counted(0, "row"), counted(12_345, "row"), counted(2, "entry", "entries")
    ('1 row', '0 rows', '12,345 rows', '2 entries')
    """
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def format_amount(size: int) -> str:
    """Return a number of bytes in short.

    >>> amount(1), amount(812), amount(12_345), amount(4_100_000_000)
    ('1 byte', '812 bytes', '12.3 kB', '4.1 GB')
    """
    if size < 1000:
        return format_count(size, "byte")
    power = min((len(str(size)) - 1) // 3, 4)
    return f"{size / 1000**power:,.1f} {'kMGT'[power - 1]}B"


def format_tokens(tokens: float) -> str:
    """Return a number of tokens in short, with the letters of `--budget`.

    >>> tokens_in_short(1), tokens_in_short(12_345), tokens_in_short(2_000_000_000)
    ('1 token', '12,345 tokens', '2.0 B tokens')
    """
    for least, letter in ((1e9, "B"), (1e6, "M")):
        if tokens >= least:
            return f"{tokens / least:,.1f} {letter} tokens"
    return format_count(round(tokens), "token")
