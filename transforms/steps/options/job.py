"""The jobs that workers get: plain values that pickle small."""

from dataclasses import dataclass, field

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.lake_parts import LakePart
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.space import Machine, Recipe
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.store.runs.commit import Run


@dataclass(frozen=True)
class EmbedJob:
    """A run of `embed`.

    `keep_text` says that shards have the text in a column of its own, which no kept one is.
    `recipe` names the model where workers have it, `machine` says how they run it. `carry` says
    that unchanged files are taken over unread from the last snapshot, `append` that its other files
    are taken over too, `reuse` that texts which it holds take their vectors from it. `read_again`
    names what keeps the run from taking anything over: options and fields of the space that would
    change. `calibration` is the folder to read it from if the store has no copy yet. `buckets` are
    the last snapshot's if they are to be kept, `text_limit` the bytes of text that may be grouped
    in memory. `hidden` says that files and folders whose names begin with a dot
    are input too. `index_asked` is the index asked for now, not remembered. `retried` says that an
    engine does work again whose worker died. `max_bad_files`
    is how many input files may be left out because they cannot be read; below 1, which part of
    them. `budget` are the estimated tokens of the files that the run takes; it leaves the others
    to later runs. `table_filter` names the partitions that are taken of a table of Iceberg or Delta
    Lake.
    """

    run: Run
    columns: Columns
    recipe: Recipe
    keep_text: bool = False
    machine: Machine = field(default_factory=Machine)
    input_format: str = "auto"
    syntax: Syntax = AS_FOUND
    limit: int | None = None
    carry: bool = False
    read_again: tuple[str, ...] = ()
    append: bool = False
    reuse: bool = False
    calibration: str | None = None
    buckets: Buckets | None = None
    text_limit: int | None = None
    retried: bool = False
    hidden: bool = False
    index_asked: IndexSpec | None = None
    max_bad_files: float = 0
    budget: int | None = None
    table_filter: str | None = None

    @property
    def chunks(self) -> ChunksSpec:
        """How documents are cut."""
        return self.recipe.chunks

    @property
    def by_content(self) -> bool:
        """Whether units are buckets of the hash space, not parts of files."""
        return self.run.partition == "content"

    def find_table_part(self, pattern: str) -> LakePart:
        """The part of an input table: the requested version, else the current one at the start."""
        version = self.run.tables.get(pattern)
        return LakePart(None if version is None else int(version), self.table_filter)

    @property
    def root(self) -> str:
        """The path of the store."""
        return self.run.root
