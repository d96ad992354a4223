"""Commands submitted to engines as processes, and what the stores that come of it must agree on."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.commands import Outcome
from helpers.corpora import manifest_of
from helpers.flink import Cluster
from helpers.snapshots import units_of

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SUBMIT = (
    "import sys; from sentence_beam.pipelines.cli import main; status = main(sys.argv[1:]); "
    "sys.exit('torch was imported' if {light} and 'torch' in sys.modules else status)"
)
OPTIONS = ("--unit-tokens", 60, "--id-column", "id", "--dtype", "float32")


def the_same(store: Path) -> dict[str, Any]:
    """Units, shard names, bytes, counts and the index of the current snapshot."""
    manifest = manifest_of(store)
    assert manifest is not None, f"{store} holds no snapshot"
    names = ("space", "partition", "rows", "work", "tokens", "index")
    return {**{name: manifest[name] for name in names}, "units": units_of(store)}


def neighbours_of(store: Path, output: Path) -> list[object]:
    """The command that finds the neighbours of all rows of a store."""
    return ["neighbours", "--store", store, "--of", store, "-k", 3, "--output", output]


def files_of(output: Path) -> dict[str, bytes]:
    """What a job of neighbours left, but for its own times and name."""
    return {
        path.name: path.read_bytes()
        for path in output.glob("[!.]*")
        if path.name != "_neighbours.json"
    }


def sidecars(store: Path) -> int:
    """How many units are done."""
    return len(list((store / "sidecars").glob("*.json")))


def workers(store: Path) -> set[str]:
    """The processes that made the units."""
    return {json.loads(path.read_text())["worker"] for path in (store / "sidecars").glob("*.json")}


ALIVE = re.compile(r"warning: --|.*, (about )?(\d+m)?\d+s( left)?$")


@dataclass
class Started:
    """A command that runs in a process of its own."""

    process: "subprocess.Popen[str]"

    def ended(self, seconds: float = 500) -> Outcome:
        """How it ended, without signs of life and the warning that workers must see the same disk,
        which these do.
        """
        out, err = self.process.communicate(timeout=seconds)
        lines = [line for line in err.splitlines(keepends=True) if not ALIVE.match(line)]
        return Outcome(self.process.returncode, out, "".join(lines))


def start(arguments: Sequence[object], light: bool = False) -> Started:
    """Run a command as a person does, on one thread; `light` makes a failure of having imported
    torch.
    """
    code = SUBMIT.format(light=light)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    return Started(
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
    )


@dataclass
class Flink:
    """A cluster, what its workers were seen to do, and how to submit to it."""

    cluster: Cluster
    hooks: Path

    def flags(self, launcher: Path | None = None) -> list[str]:
        """What sends a command there."""
        found = [
            "--runner=FlinkRunner", f"--flink_master={self.cluster.address}", "--environment_type=PROCESS",
            f"--flink_job_server_jar={os.environ['SENTENCE_BEAM_FLINK_JAR']}",
        ]  # fmt: skip
        return found + ([f'--environment_config={{"command": "{launcher}"}}'] if launcher else [])

    def start(self, *arguments: object, launcher: Path | None = None) -> Started:
        """Submit a command, which then runs beside this process."""
        return start([*arguments, *self.flags(launcher)], light=True)

    def run(self, *arguments: object, launcher: Path | None = None) -> Outcome:
        """Submit a command and wait for its end."""
        return self.start(*arguments, launcher=launcher).ended()

    def pace(self, seconds: float) -> None:
        """How much longer a forward pass takes from now on."""
        (self.hooks / "pace").write_text(str(seconds))

    def seen(self, what: str) -> list[str]:
        """Process ids of the loads or forward passes so far."""
        path = self.hooks / what
        return path.read_text().split() if path.exists() else []

    def forget(self) -> None:
        """Begin anew: nothing seen, full speed, two TaskManagers with free slots and no job."""
        self.cluster.cancel()
        self.cluster.end_workers()
        for name in [
            name for name, process in self.cluster.processes.items() if process.poll() is not None
        ]:
            del self.cluster.processes[name]
        while len(self.cluster.task_managers()) < 2:
            self.cluster.start_task_manager()
        self.cluster.wait_for_slots(2)
        for path in self.hooks.iterdir():
            path.unlink()
