"""What an operator copies for a nightly job: read by what really reads it, and run."""

import http.server
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest
import yaml
from helpers.containers import NAMESPACE, needs_namespaces, terminated
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines import embed, plan, report, vacuum, verify

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NIGHTLY = DEPLOY / "nightly"
UNITS = sorted((NIGHTLY / "systemd").glob("*.service")) + sorted(
    (NIGHTLY / "systemd").glob("*.timer")
)
PARSERS = {
    "embed": embed.parser,
    "plan": plan.parser,
    "report": report.parser,
    "vacuum": vacuum.parser,
    "verify": verify.parser,
}


def tool(name: str) -> str:
    """A program that reads such files, or a skip."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def night(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a scheduler does."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([NIGHTLY / "nightly.sh"], env=run, capture_output=True, text=True)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Two input files and what the script reads."""
    model = save_tiny_model("bert", tmp_path / "tiny")
    for name in ("a", "b c"):
        write_parquet(tmp_path / "in" / f"{name}.parquet", sentences(20, 20 * len(name)))
    globs = "\n".join(f"{tmp_path}/in/{name}.parquet" for name in ("a", "b c"))
    options = f"--model {model} --index Flat --dtype float32"
    return {
        "INPUT": globs,
        "STORE": str(tmp_path / "store"),
        "EMBED_OPTIONS": options,
        "KEEP": "1",
        "KEEP_DAYS": "0",
    }


@pytest.mark.slow
def test_two_nights(settings: dict[str, str]) -> None:
    first = night(**settings)
    assert (first.returncode, first.stderr) == (0, "")
    store = Path(settings["STORE"])
    manifest = manifest_of(store)
    assert manifest is not None
    assert manifest["rows"]["written"] == 40
    assert night(**settings).returncode == 0
    later = manifest_of(store)
    assert later is not None
    assert later["work"] == {**later["work"], "embedded": 0, "carried": 40}
    assert len(list((store / "manifests").iterdir())) == 1


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """A `sentence-beam` that writes down how it was called; the command named by FAILS ends with
    STATUS.
    """
    command = tmp_path / "bin" / "sentence-beam"
    command.parent.mkdir()
    command.write_text(
        '#!/bin/sh\nprintf "[%s]" "$@"; echo\n[ "$1" != "$FAILS" ] || exit "$STATUS"\n'
    )
    command.chmod(0o755)
    return command.parent


def called(recorder: Path, **environment: str) -> tuple[int, list[str]]:
    """The script's exit status and the commands that it ran."""
    run = {"PATH": f"{recorder}:/usr/bin:/bin", "FAILS": "", "STATUS": "0", **environment}
    ended = subprocess.run([NIGHTLY / "nightly.sh"], env=run, capture_output=True, text=True)
    return ended.returncode, ended.stdout.splitlines()


def test_what_a_night_runs(recorder: Path) -> None:
    settings = {
        "INPUT": "in/a b*.parquet\nmore/*.txt",
        "STORE": "/st ore",
        "EMBED_OPTIONS": "--index Flat --id-column *",
    }
    embed_line = "[embed][--input][in/a b*.parquet][--input][more/*.txt][--store][/st ore][--index][Flat][--id-column][*]"
    lines = [
        embed_line,
        "[verify][--store][/st ore]",
        "[vacuum][--store][/st ore][--keep][14][--older-than][7d]",
    ]
    assert called(recorder, **settings) == (0, lines)
    assert called(recorder, **settings, FAILS="embed", STATUS="3") == (3, lines[:1])
    assert called(recorder, **settings, FAILS="verify", STATUS="1") == (1, lines[:2])
    bare = {"INPUT": "a", "STORE": "s", "KEEP": "2", "KEEP_DAYS": "1"}
    assert called(recorder, **bare)[1][2] == "[vacuum][--store][s][--keep][2][--older-than][1d]"
    assert called(recorder, STORE="s") == (1, [])


def test_a_signal_during_the_end_of_a_command_ends_the_night(recorder: Path) -> None:
    """The command has succeeded all the same; the next one must not begin."""
    command = recorder / "sentence-beam"
    command.write_text("#!/bin/sh\ntrap '' TERM\necho \"$1\"\nkill -TERM $PPID\nsleep 0.1\n")
    assert called(recorder, INPUT="a", STORE="s") == (143, ["embed"])


@needs_namespaces
def test_a_container_hands_the_signal_on_and_waits(tmp_path: Path) -> None:
    command = tmp_path / "sentence-beam"
    command.write_text(
        "#!/bin/sh\ntrap 'sleep 0.2; touch ended; exit 143' TERM\n"
        "touch begun\nwhile :; do sleep 0.05; done\n"
    )
    command.chmod(0o755)
    *_, job = yaml.safe_load_all((NIGHTLY / "kubernetes" / "cronjob.yaml").read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    argv = [word.replace("/opt/sentence-beam/deploy", str(DEPLOY)) for word in container["command"]]
    run = {"PATH": f"{tmp_path}:/usr/bin:/bin", "INPUT": "a", "STORE": "s"}
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen([*NAMESPACE, *argv], env=run, cwd=tmp_path, stderr=err)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    assert terminated(process) == 143
    assert (tmp_path / "ended").exists()
    assert "status 143: was ended from outside" in (tmp_path / "err").read_text()


@pytest.mark.slow
def test_a_night_ends_with_the_status_of_what_failed(settings: dict[str, str]) -> None:
    missing = night(**{**settings, "INPUT": f"{settings['STORE']}/nothing/*.parquet"})
    assert missing.returncode not in (0, 3, 4)
    assert len(missing.stderr.splitlines()) == 1
    assert (
        night(
            **{**settings, "EMBED_OPTIONS": f"{settings['EMBED_OPTIONS']} --pooler what"}
        ).returncode
        == 2
    )
    assert night(**{**settings, "INPUT": ""}).returncode != 0


@pytest.mark.parametrize(
    ("status", "said"),
    [(1, "run it again"), (2, "option"), (3, "gate"), (4, "rows"), (137, "outside")],
)
def test_an_alert_says_what_the_status_means(status: int, said: str) -> None:
    posted: list[str] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hook"
        run = {**os.environ, "ALERT_URL": url, "STORE": "gs://a/store", "no_proxy": "127.0.0.1"}
        ended = subprocess.run(
            [NIGHTLY / "alert.sh", str(status)], env=run, capture_output=True, text=True
        )
    assert ended.returncode == 0, ended.stderr
    assert f"ended with status {status}: " in ended.stderr
    assert said in ended.stderr
    assert urllib.parse.parse_qs(posted[0])["text"] == [ended.stderr.strip()]


def test_a_good_night_alerts_nobody() -> None:
    ended = subprocess.run([NIGHTLY / "alert.sh", "0"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("script", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("script", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_lint(script: Path) -> None:
    ended = subprocess.run([tool("shellcheck"), script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for unit in UNITS:  # the script's place is the operator's, here it is the checkout
        text = unit.read_text().replace("/opt/sentence-beam/deploy", str(DEPLOY))
        (tmp_path / unit.name).write_text(text)
    ended = subprocess.run(
        [analyze, "verify", *(tmp_path / unit.name for unit in UNITS)],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_kubernetes_reads_the_job() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((NIGHTLY / "kubernetes" / "cronjob.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["ConfigMap", "CronJob"]
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)


def test_all_three_try_again_after_the_same_statuses() -> None:
    unit = (NIGHTLY / "systemd" / "sentence-beam.service").read_text()
    assert "RestartPreventExitStatus=2 3 4\n" in unit
    job = list(yaml.safe_load_all((NIGHTLY / "kubernetes" / "cronjob.yaml").read_text()))[1]
    rules = job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [2, 3, 4]
    assert (
        "NOT_AGAIN = (2, 3, 4)\n" in (NIGHTLY / "airflow" / "sentence_beam_nightly.py").read_text()
    )


@pytest.mark.parametrize(
    "path",
    sorted(path for path in NIGHTLY.rglob("*") if path.is_file()),
    ids=lambda path: path.name,
)
def test_options_exist(path: Path) -> None:
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf8")))
    ours = {
        option
        for make in PARSERS.values()
        for action in make()._actions
        for option in action.option_strings
    }
    beam = {"--runner", "--flink-master", "--environment-type"}
    foreign = {"--now", "--system"}
    assert flags <= ours | beam | foreign


def test_the_dag_is_python() -> None:
    path = NIGHTLY / "airflow" / "sentence_beam_nightly.py"
    compile(path.read_text(), path, "exec")
    assert importlib.util.find_spec("sentence_beam_nightly") is None
