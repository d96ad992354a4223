"""Parse and read the tasks of a command: `[KIND:]NAME=PATH[,PATH]`."""

from collections.abc import Sequence

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.evaluate_options import AVERAGE
from sentence_beam.transforms.evaluation.kinds.classification import Classification, Inference
from sentence_beam.transforms.evaluation.kinds.clustering import Clustering
from sentence_beam.transforms.evaluation.kinds.duplicates import Duplicates
from sentence_beam.transforms.evaluation.kinds.judgements import DROP, KEEP, SAME_IDS
from sentence_beam.transforms.evaluation.kinds.probing import make
from sentence_beam.transforms.evaluation.kinds.relatedness import Relatedness
from sentence_beam.transforms.evaluation.kinds.retrieval import Retrieval
from sentence_beam.transforms.evaluation.kinds.store_retrieval import StoreRetrieval
from sentence_beam.transforms.evaluation.kinds.sts import Sts
from sentence_beam.transforms.evaluation.kinds.triplets import Triplets
from sentence_beam.transforms.evaluation.similarity import COSINE
from sentence_beam.transforms.evaluation.task import Task

FORM = "[KIND:]NAME=PATH[,PATH]"
KINDS = (
    "sts", "relatedness", "retrieval", "classification", "nli", "pairs", "triplets", "clustering",
    "probing"
)  # fmt: skip


def read_tasks(
    words: Sequence[str], made: Sequence[str], classifier: str, similarity: str = COSINE
) -> list[Task | StoreRetrieval]:
    """Read the tasks of `--task`, and those that `--make` makes, PROBE=PATH.

    Raises OptionError for a name that is given twice.
    """
    tasks: list[Task | StoreRetrieval] = [read_task(word, classifier, similarity) for word in words]
    for word in made:
        name, equals, path = word.partition("=")
        if not equals or not path:
            raise OptionError(
                f"{cite('make')} {word}: say PROBE=PATH, as in bigram-shift=sentences.txt"
            )
        tasks.append(make(name, path, classifier))
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(
            f"{cite('task')} {twice} is given twice; say {twice}=PATH,PATH for several files of one"
            " task"
        )
    return tasks


def read_task(word: str, classifier: str, similarity: str = COSINE) -> Task | StoreRetrieval:
    """Read the task of one `--task`. Raises OptionError for a value of another form."""
    kind, name, listed = task_files.split_word(word)
    if not name or not listed:
        raise OptionError(
            f"{cite('task')} {word}: say {FORM}, or NAME=PATH,PATH for several files of one task"
        )
    if kind not in KINDS:
        raise OptionError(f"{cite('task')} {word}: there is no kind {kind}; say {', '.join(KINDS)}")
    if "/" in name:  # the name becomes a picture's file name
        raise OptionError(f"{cite('task')} {word}: the name {name} must not hold a slash")
    if name == AVERAGE:
        raise OptionError(
            f"{cite('task')} {word}: {AVERAGE} is the average of several tasks; choose another name"
        )
    return _read(kind, name, listed.split(","), classifier, similarity)


def _read(
    kind: str, name: str, paths: Sequence[str], classifier: str, similarity: str
) -> Task | StoreRetrieval:
    match kind:
        case "sts":
            return Sts.read(name, paths, similarity)
        case "relatedness":
            return Relatedness.read(name, paths)
        case "classification":
            return Classification.read(name, paths, classifier)
        case "nli":
            return Inference.read(name, paths, classifier)
        case "pairs":
            return Duplicates.read(name, paths, similarity)
        case "triplets":
            return Triplets.read(name, paths, similarity)
        case "clustering":
            return Clustering.read(name, paths)
        case "probing":
            return Classification.read_probing(name, paths, classifier)
    return _read_retrieval(name, paths)


def _read_retrieval(name: str, words: Sequence[str]) -> Task | StoreRetrieval:
    """Read the task of a folder, or of a store with its queries and judgements.

    A word `same-ids=` is not a path.
    """
    prefix = f"{SAME_IDS}="
    paths = [word for word in words if not word.startswith(prefix)]
    same_ids = [word.removeprefix(prefix) for word in words if word.startswith(prefix)]
    if not same_ids:
        same_ids = [DROP]
    if len(same_ids) > 1 or same_ids[0] not in (DROP, KEEP):
        raise OptionError(
            f"{cite('task')} retrieval:{name}: say {SAME_IDS}={DROP} or {SAME_IDS}={KEEP}, once"
        )
    if len(paths) == 1:
        return Retrieval.read(name, paths[0], same_ids[0])
    if len(paths) == 3:
        store, queries, qrels = paths
        return StoreRetrieval.read(name, store, queries, qrels, same_ids[0])
    raise OptionError(
        f"{cite('task')} retrieval:{name}: say a FOLDER, or STORE,queries.jsonl,qrels.tsv"
    )
