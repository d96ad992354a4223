"""Command lines as people mistype them: the exit status and the one line that says what was
meant.

Covers pipelines/cli.py.
Covers pipelines/common/beam_flags.py.
Covers pipelines/common/command.py.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.commands import Run, runner
from helpers.corpora import files_in
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines.cli import main

pytestmark = pytest.mark.usefixtures("plain_beam")

EMBED = "embed --input x.txt --store s"
# A command line, its exit status, and what its line holds.
CARELESS = """
embedd --input x                      | 2 | did you mean embed?
emebd                                 | 2 | did you mean embed?
serach                                | 2 | did you mean search?
encode                                | 2 | no command encode; there are embed
idnex                                 | 2 | did you mean index?
histroy                               | 2 | did you mean history?
xyzzy                                 | 2 | there are embed
--store s embed                       | 2 | a command comes before its options
help embedd                           | 2 | did you mean embed?
completion                            | 2 | name one shell of bash, zsh, fish
completion tcsh                       | 2 | name one shell of bash, zsh, fish
embed                                 | 2 | name one by --input
embed --store s                       | 2 | name one by --input
embed --imput x --store s             | 2 | did you mean --input?
embed -i x -s s                       | 2 | unknown option -i
search 'a dog'                        | 2 | store holds no store
info s                                | 2 | unknown argument s; did you mean --store s?
embed --input x --stroe s             | 2 | did you mean --store?
EMBED --batch-size 32                 | 2 | unknown option --batch-size; see --help
EMBED --poler mean                    | 2 | did you mean --pooler?
EMBED --max-token 5                   | 2 | did you mean --max-tokens?
EMBED --min-tokens 5                  | 2 | unknown option --min-tokens; see --help
EMBED --dim 8 --dim 9                 | 2 | the dim is 8 already
EMBED --normalise                     | 2 | did you mean --normalize?
EMBED --no-normalise                  | 2 | did you mean --no-normalize?
EMBED --dry-run                       | 2 | unknown option --dry-run; say `sentence-beam plan`
EMBED --quite                         | 2 | did you mean --quiet?
EMBED --jsno                          | 2 | did you mean --json?
EMBED --xyzzy                         | 2 | unknown option --xyzzy; see --help
EMBED --xyzzy=1                       | 2 | unknown option --xyzzy=1; see --help
EMBED -z                              | 2 | unknown option -z; see --help
EMBED --keep text                     | 2 | unknown option --keep
EMBED --max-reject=0.5                | 2 | did you mean --max-rejects?
EMBED --flink_only_flag=3             | 2 | unknown option --flink_only_flag=3
EMBED --direct_num_workers=many       | 2 | --direct_num_workers
embed --store s --job_name x          | 2 | name one by --input
embed --store s --xyzzy x             | 2 | unknown option --xyzzy
distill --output o a.txt              | 2 | unknown argument a.txt
EMBED --dtype fp16                    | 2 | did you mean float16?
EMBED --dtype bf16                    | 2 | did you mean bfloat16?
EMBED --dtype half                    | 2 | did you mean float16?
EMBED --dtype fp32                    | 2 | did you mean float32?
EMBED --dtype float23                 | 2 | did you mean float32?
EMBED --dtype Float32                 | 2 | did you mean float32?
EMBED --dtype int4                    | 2 | choose from 'auto', 'float32'
EMBED --device gpu                    | 2 | did you mean cuda?
EMBED --device gpu:1                  | 2 | did you mean cuda:1?
EMBED --device 0                      | 2 | did you mean cuda:0?
EMBED --device mps                    | 2 | of accelerators those of CUDA alone are used
EMBED --device tpu                    | 2 | of accelerators those of CUDA alone are used
EMBED --device CPU                    | 2 | did you mean cpu?
EMBED --device cdua                   | 2 | did you mean cuda?
EMBED --metric cos                    | 2 | did you mean cosine?
EMBED --metric dot                    | 2 | did you mean ip?
EMBED --metric euclidean              | 2 | did you mean l2?
EMBED --partition files               | 2 | did you mean file?
EMBED --format jsonlines              | 2 | did you mean jsonl?
EMBED --format txt                    | 2 | did you mean text?
EMBED --limit 0                       | 2 | --limit
EMBED --limit ten                     | 2 | whole number above zero
EMBED --limit -3                      | 2 | --limit: -3
EMBED --max-tokens 0                  | 2 | --max-tokens: 0
EMBED --dim -1                        | 2 | --dim: -1
EMBED --unit-tokens 0                 | 2 | --unit-tokens: 0
EMBED --tokens-per-batch many         | 2 | --tokens-per-batch: many
EMBED --max-deletes -1                | 2 | --max-deletes: -1
EMBED --max-rejects nan               | 2 | --max-rejects: nan
EMBED --partition rows                | 2 | --partition: invalid choice: 'rows'
EMBED --precision int1                | 2 | --precision: invalid choice: 'int1'
EMBED --format xml                    | 2 | --format: invalid choice: 'xml'
EMBED --max-rejects 2                 | 2 | number from 0 to 1
EMBED --max-rejects 1%                | 2 | number from 0 to 1
EMBED --max-drift 2.5                 | 2 | --max-drift
EMBED --max-drift nan                 | 2 | --max-drift
EMBED --unit-tokens 1.5k              | 2 | 256k
plan --input x.txt --price-per-hour free | 2 | amount of money
EMBED --min-ram lots                  | 2 | 16GB
EMBED --store ''                      | 2 | is empty
EMBED --model ''                      | 2 | --model: is empty
EMBED --store t                       | 2 | name one
EMBED --keep-text=no                  | 2 | --keep-text
EMBED --keep-texts                    | 2 | did you mean --keep-text?
EMBED --no-keep-texts                 | 2 | did you mean --no-keep-text?
EMBED --keeptext                      | 2 | did you mean --keep-text?
EMBED --prompt a --prompt-name b      | 2 | not allowed with
EMBED --pooler                        | 2 | expected one argument
EMBED --runner=SparkleRunner          | 2 | SparkleRunner
EMBED --config nowhere.toml           | 2 | nowhere.toml
EMBED --chunk budget                  | 2 | did you mean --chunks?
plan                                  | 2 | name one by --input
fit --store s --output o              | 2 | required: --method
fit --store s --method tfdf --output o | 2 | tfdf
search --store s                      | 2 | one of the arguments --query --queries --id --query-vectors is required
search --query x                      | 2 | store holds no store
search --store s --querry x           | 2 | did you mean --query?
search --store s --querry=x           | 2 | did you mean --query?
search --stroe s --query x            | 2 | did you mean --store?
search --store s --query x --top-k 5   | 2 | unknown option --top-k; see --help
search --store s --query x -k 0       | 2 | -k
search --store nowhere --query x      | 2 | holds no store
search --store s --query x --output o.csvv | 2 | must end in .parquet, .csv, .json or .jsonl
search --store s --query x --output o.xlsx | 2 | must end in .parquet, .csv, .json or .jsonl
search --store s --query ''           | 2 | --query: it is empty
search --store s --query x --query ' ' | 2 | --query: it is empty
search --store s --query x --queries - | 2 | not allowed with
search --store s --store t --query x  | 2 | name one
search --store s --query x --ful      | 2 | did you mean --full?
search --store s --query x --queries  | 2 | expected one argument
search --store s --query x --full=yes | 2 | --full
search --store s --query x --quiery y | 2 | did you mean --query?
index --store nowhere                 | 2 | holds no store
verify --store nowhere                | 2 | holds no store
files --store nowhere                 | 2 | holds no store
files --store s --query x             | 2 | unknown option --query
history --store nowhere               | 2 | holds no store
history --store s --output h.txt      | 2 | must end in .parquet, .csv, .json or .jsonl
rejects --store s --output r.xls      | 2 | must end in .parquet, .csv, .json or .jsonl
pairs --input x.txt --output p.xlsx   | 2 | must end in .parquet, .csv, .json or .jsonl
diff --store nowhere                  | 2 | holds no store
diff --store s --output o.txt         | 2 | must end in .parquet, .csv, .json or .jsonl
rollback --store s                    | 2 | required: RUN
vacuum --store nowhere                | 2 | holds no store
vacuum --store s --older-than week    | 2 | span of time
report --store nowhere                | 2 | holds no store
"""
# The same in a folder that holds x.txt, y.csv, mine/notes.txt, empty/ and the store s of x.txt's
# three rows.
THERE = """
embed --input x.txt --store x.txt               | 2 | x.txt cannot be written
embed --input x.txt --store x.txt/s             | 2 | x.txt/s cannot be written
embed --input s --store s                       | 2 | takes in the store s itself
embed --input . --store s                       | 2 | takes in the store s itself
embed --input empty --store s                   | 2 | it is no folder with files
embed --input http://example.com/x --store s    | 2 | give a local path, gs:// or s3://
embed --input x.txt --store https://x/y         | 2 | give a local path, gs:// or s3://
embed --input x.txt --store s --calibration mine | 2 | make a calibration with: sentence-beam fit
embed --input x.txt --store s --model x.txt     | 2 | no such directory
embed --input x.txt --store s --model no/such   | 2 | neither cached nor fetched
embed --input x.txt --store s --revision main   | 2 | has none, only ids of the hub do; leave it out
embed --input x.txt --store s --model minilm --revision main | 2 | leave it out
embed --input x.txt --store s --pooler tfidf:mine --reembed | 2 | make one with: sentence-beam fit
embed --input x.txt --store s --reembed --pooler meen | 2 | meen
embed --input x.txt --store s --reembed --pooler mean: | 2 | mean:
embed --input x.txt --store s --reembed --pooler mean+ | 2 | pooler '' is not known
embed --input x.txt --store s --reembed --pooler ditto | 2 | ditto
embed --input x.txt --store s --reembed --pooler ditto:9-9 | 2 | 9-9
embed --input x.txt --store s --reembed --pooler mean:foo=1 | 2 | foo
embed --input x.txt --store s --reembed --pooler '' | 2 | pooler '' is not known
embed --input x.txt --store s --index hnsw      | 2 | use auto, compact, Flat
embed --input x.txt --store s --max-tokens 1 --reembed | 2 | its 2 special tokens need room
embed --input x.txt --store s --max-tokens 3    | 2 | with --reembed
embed --input x.txt --store s --partition content | 2 | partition would change
embed --input x.txt --store s --dim 1000 | 2 | give 1 to
embed --input x.txt --store s --prompt-name foo | 2 | its prompts: none
plan --input s                                  | 2 | no file matches but
fit --store s --method whitening --output mine  | 2 | holds notes.txt and was not made by fit
fit --store s --method whitening --output s     | 2 | was not made by fit
fit --store s --method whitening --output x.txt | 2 | x.txt is a file; name a folder
fit --store s --method cls --output c           | 2 | allowed: standardize
fit --store s --method tfidf --output c         | 2 | --store has no meaning
fit --store s --method whitening:0 --output c   | 2 | width=0 is not allowed
fit --input x.txt --method flow --output c      | 2 | --input has no meaning
recalibrate --store s                           | 2 | required: --calibration
recalibrate --store s --calibration mine        | 2 | mine/calibration.json is missing
embed --input y.csv --store v --keep-columns id | 2 | say --id-column id
embed --input x.txt --store s --id-column id    | 2 | without --id-column
embed --input x.txt --store s --keep-columns a  | 2 | is plain text and has no column a (--keep-columns)
embed --input y.csv --store v --keep-columns lang:flaot | 2 | did you mean float?
recalibrate --store mine --calibration none     | 2 | mine holds no store
index --store mine                              | 2 | mine holds no store
index --store s --target-recall 95              | 2 | number from 0 to 1
index --store s --retrain yes                   | 2 | unknown argument yes
embed --input x.txt --store s --target-recall 1 | 2 | it is an option of `sentence-beam index`
search --store s --query x --k 3                | 2 | did you mean -k?
search --store s --query x --snapshot nope      | 2 | the latest are
search --store s --query x --model mine         | 2 | mine
search --store s --query x --output mine        | 2 | must end in
search --store s --query x --output mine/no/x.csv | 2 | there is no such folder
search --store s --query x --output /proc/x.csv | 2 | cannot be written
search --store s --queries empty                | 2 | empty
search --store s --query x --queries x.txt      | 2 | not allowed with
pairs --input x.txt --output x.txt              | 2 | must end in
pairs --input y.csv --text-column body          | 2 | its columns, by its first row: text, lang
files --store s --link mine                     | 2 | holds notes.txt, which is no link to a shard
files --store s --link x.txt                    | 2 | is no folder
files --store s --link s/embeddings             | 2 | is no link to a shard
evaluate                                        | 2 | say --task NAME=PATH
evaluate --task x.txt                           | 2 | say [KIND:]NAME=PATH
evaluate --task a=nowhere.tsv                   | 2 | nowhere.tsv: there is no such file
evaluate --task foo:a=x.txt                     | 2 | there is no kind foo
evaluate --task a=x.txt                         | 2 | no column score in its header
evaluate --task a=x.txt --output mine           | 2 | mine is a folder; name a file, which must end in .parquet
diagnose --input x.txt --output figures         | 2 | must end in .parquet, .csv, .json or .jsonl
export --store s --output mine                  | 2 | is no export
export --store s --output s                     | 2 | is no export
verify --store s --snapshot -100                | 2 | has no snapshot -100
rejects --store s --snapshot nope                  | 2 | has no run nope; the latest are 2
history --store s --output runs.xlsx            | 2 | must end in
history --store s --output /proc/runs.csv       | 2 | cannot be written
diff a b --store s                              | 2 | has no snapshot a
diff --store s --output nowhere/x.parquet       | 2 | there is no such folder
rollback latest --store s                       | 2 | is the current snapshot
rollback nope --store s                         | 2 | has no snapshot nope
report --store s --output mine                  | 2 | must end in .html
vacuum --store s --keep 0                       | 2 | whole number above zero
vacuum --store s --older-than 7                 | 2 | span of time
embed --config x.txt                            | 2 | cannot be read as TOML
"""


def rows(table: str) -> list[list[str]]:
    """The lines of a table, in cells."""
    return [[cell.strip() for cell in row.split(" | ")] for row in table.strip().splitlines()]


ROWS = rows(CARELESS)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return runner(capfd)


def test_the_table_is_long() -> None:
    assert len(ROWS) >= 80


@pytest.mark.parametrize(("line", "status", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_a_careless_command_is_one_line(
    run: Run, tmp_path: Path, line: str, status: str, said: str
) -> None:
    outcome = run(*shlex.split(line.replace("EMBED", EMBED)))
    assert outcome.status == int(status), outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert said in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and a store."""
    folder = tmp_path_factory.mktemp("there")
    for name, text in {
        "x.txt": "a dog\na cat\na bird\n",
        "y.csv": "text,lang\na dog,en\n",
        "mine/notes.txt": "mine",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    how = ("--model", str(save_tiny_model("bert", folder / "s.model")), "--quiet")
    assert (
        main(["embed", "--input", str(folder / "x.txt"), "--store", str(folder / "s"), *how]) == 0
    )
    return folder


@pytest.mark.parametrize(
    ("line", "status", "said"), rows(THERE), ids=[row[0] for row in rows(THERE)]
)
def test_a_careless_command_among_files_is_one_line(
    there: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    status: str,
    said: str,
) -> None:
    monkeypatch.chdir(there)
    before = files_in(there, "s/embeddings", "mine")
    outcome = runner(capfd)(*shlex.split(line))
    outcome.failed(int(status), said)
    assert outcome.out == ""
    assert files_in(there, "s/embeddings", "mine") == before
    assert sorted(path.name for path in there.iterdir()) == [
        "empty",
        "mine",
        "s",
        "s.model",
        "x.txt",
        "y.csv",
    ]


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_is_closed(
    there: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.chdir(there)
    run = runner(capfd)
    with monkeypatch.context() as patch:
        patch.setattr(f"sys.{closed}", None)
        outcome = (
            run("plan", "--input", "-", "--store", "s")
            if closed == "stdin"
            else run("files", "--store", "s")
        )
    if closed == "stdin":
        outcome.failed(2, "--input -: standard input is closed")
    else:
        assert (outcome.status, outcome.err) == (0, "")


def test_an_output_that_is_full_is_one_line(there: Path) -> None:
    with open("/dev/full", "w") as full:
        argv = [
            sys.executable,
            "-m",
            "sentence_beam",
            "files",
            "--store",
            str(there / "s"),
        ]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1
    assert (
        done.stderr
        == "sentence-beam files: done, but its output cannot be written (No space left on device)\n"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(run: Run, shell: str) -> None:
    script = run("completion", shell).ok().out
    assert "recalibrate" in script
    assert "keep-columns" in script


def test_the_version_is_said(run: Run) -> None:
    assert run("--version").ok().out.startswith("sentence-beam 0.")


def test_flags_of_beam_have_a_help_of_their_own(run: Run) -> None:
    assert "--runner" in run("embed", "--help-beam").ok().out


def test_a_file_of_options_gives_way_to_flags(run: Run, tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text(
        'store = "a"\n[search]\nquery = ["x"]\nk = 3\n[embed]\nlimit = 2\n'
    )
    run("search", "--config", "o.toml").failed(2, f"{tmp_path}/a holds no store")
    run("search", "--config=o.toml", "--store", "b").failed(2, f"{tmp_path}/b holds no store")
    run("search", "--config=o.toml", "--id=a").failed(2, f"{tmp_path}/a holds no store")
    (tmp_path / "o.toml").write_text('store = "a"\nquery = ["x"]\nk = 0\nfull = "yes"\n')
    run("search", "--config=o.toml").failed(
        2, "--config o.toml: argument -k: 0 is not a whole number above zero"
    )
    run("search", "--config=o.toml", "-k=2").failed(2, "--full: 'yes' is not True or False")
    (tmp_path / "o.toml").write_text('store = "a"\nquery = ["x"]\nid = "y"\n')
    run("search", "--config=o.toml").failed(2, "--id --query-vectors is required, and one alone")
    (tmp_path / "o.toml").write_text('store = "a"\nid = "x"\nquiet = "yes"\n')
    run("search", "--config=o.toml").failed(2, "o.toml: quiet is true or false, not 'yes'")
    (tmp_path / "o.toml").write_text('store = "a"\nindex = "Flat"\nrunner = "NoRunner"\n')
    run("index", "--config=o.toml").failed(2, "--runner NoRunner cannot be used")
    run("index", "--config=o.toml", "--runner=FnApiRunner").failed(2, f"{tmp_path}/a holds no")
    (tmp_path / "o.toml").write_text('[search]\nstroe = "a"\n')
    run("search", "--config", "o.toml", "--query", "x").failed(
        2, "stroe is no option of search", "did you mean store?"
    )
    (tmp_path / "o.toml").write_text("[serach]\nk = 3\n")
    run("search", "--config", "o.toml", "--query", "x").failed(
        2, "[serach] is no command; did you mean search?"
    )
    (tmp_path / "o.toml").write_text("k = ")
    run("search", "--config", "o.toml").failed(2, "o.toml cannot be read as TOML")


def test_a_plan_without_a_store_is_of_the_default_one_and_is_json_where_asked(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("a dog\n")
    found = json.loads(
        run("plan", "--input", "x.txt", "--model", "all-MiniLM-L6-v2", "--json").ok().out
    )
    assert (found["command"], found["files"], found["store"], found["dim"]) == (
        "plan",
        1,
        str(tmp_path / "store"),
        384,
    )
    assert found["tokens_s"] > 0
    assert {"host_tokens_s", "device_tokens_s"} <= set(found)
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
