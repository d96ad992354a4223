"""Token statistics from the folders that a pooler's SPEC names."""

from pathlib import Path

from transforms.pooling.token_statistics import TokenStatistics
from transforms.space.spec import PoolerSpec
from transforms.space.token_table import read_table


def load_tables(spec: PoolerSpec) -> dict[str, TokenStatistics]:
    """Statistics by digest; `OptionError` where a folder holds none or a damaged one."""
    folders = [part.table for part in spec.parts if part.table is not None]
    loaded = [load_statistics(folder) for folder in folders]
    return {statistics.digest: statistics for statistics in loaded}


def load_statistics(folder: str | Path) -> TokenStatistics:
    """The token statistics of one folder."""
    table = read_table(folder)
    counts = Path(folder).expanduser() / table.described["counts"]
    return TokenStatistics.from_files(table, counts.read_bytes())
