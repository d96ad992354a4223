"""A real Flink cluster on this machine: a JobManager and TaskManagers, each a JVM of its own on
free loopback ports.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
OPENED = (
    "java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent",
    "java.util.concurrent.atomic", "java.lang.reflect", "sun.net.util",
)  # fmt: skip
MEMORY = {
    "task.heap.size": "400mb", "managed.size": "256mb", "network.min": "128mb", "network.max": "128mb",
    "framework.heap.size": "128mb", "framework.off-heap.size": "128mb", "task.off-heap.size": "0b",
    "jvm-metaspace.size": "256mb", "jvm-overhead.min": "192mb", "jvm-overhead.max": "192mb",
}  # fmt: skip
SECONDS = 300


def missing() -> str | None:
    """What a cluster here would need and lacks."""
    if shutil.which("java") is None:
        return "there is no java"
    if importlib.util.find_spec("pyflink") is None:
        return "apache-flink-libraries is not installed"
    jar = os.environ.get("SENTENCE_BEAM_FLINK_JAR", "")
    return None if os.path.isfile(jar) else "SENTENCE_BEAM_FLINK_JAR names no job server jar"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Cluster:
    """One JobManager and its TaskManagers, of one slot each; `env` is what they and their workers
    run in.
    """

    folder: Path
    env: dict[str, str]
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started: int = 0

    @property
    def address(self) -> str:
        """What --flink_master is to be."""
        return f"localhost:{self.port}"

    def start(self, task_managers: int = 2) -> None:
        """Start all of it, and return when every slot is there."""
        rpc = free_port()
        (self.folder / "conf").mkdir()
        (self.folder / "tmp").mkdir()
        (self.folder / "conf" / "config.yaml").write_text(
            f"jobmanager.rpc.address: localhost\njobmanager.rpc.port: {rpc}\njobmanager.bind-host: localhost\n"
            "jobmanager.memory.process.size: 1024m\ntaskmanager.bind-host: localhost\ntaskmanager.host: localhost\n"
            "taskmanager.numberOfTaskSlots: 1\nrest.address: localhost\nrest.bind-address: localhost\n"
            f"rest.port: {self.port}\nrest.bind-port: {self.port}\n"
            f"{_restarts()}heartbeat.interval: 2000\nheartbeat.timeout: 10000\nio.tmp.dirs: {self.folder / 'tmp'}\n"
        )
        (self.folder / "conf" / "log4j.properties").write_text(
            "rootLogger.level = WARN\nrootLogger.appenderRef.out.ref = Out\nappender.out.name = Out\n"
            "appender.out.type = CONSOLE\nappender.out.layout.type = PatternLayout\n"
            "appender.out.layout.pattern = %d{HH:mm:ss} %p %c{1} %m%n\n"
        )
        self.start_job_manager()
        for _ in range(task_managers):
            self.start_task_manager()
        self.wait_for_slots(task_managers)

    def start_job_manager(self) -> None:
        """Start one, at the ports of the first; running TaskManagers join it."""
        self._run("jm", JOB_MANAGER, "-Xmx512m", ["--executionMode", "cluster"])

    def task_managers(self) -> list[str]:
        """Names of those that run, the oldest first."""
        return [
            name
            for name, process in self.processes.items()
            if name != "jm" and process.poll() is None
        ]

    def start_task_manager(self) -> None:
        """Start one, which joins by itself."""
        self._started += 1
        name = f"tm{self._started}"
        memory = [f"taskmanager.memory.{part}={size}" for part, size in MEMORY.items()]
        # With Beam's jar in Flink's lib, so that workers may outlive a stage. A JobManager reads
        # the job from a jar of its own.
        said = [
            "taskmanager.cpu.cores=1",
            f"taskmanager.resource-id={name}",
            "classloader.resolve-order=parent-first",
        ]
        settings = [word for setting in (*said, *memory) for word in ("-D", setting)]
        self._run(name, TASK_MANAGER, "-Xmx600m", ["-XX:MaxDirectMemorySize=300m"], settings)

    def _run(self, name: str, main: str, heap: str, *arguments: list[str]) -> None:
        jvm, after = (arguments[0], arguments[1]) if len(arguments) > 1 else ([], arguments[0])
        lib = Path(importlib.util.find_spec("pyflink").submodule_search_locations[0]) / "lib"
        jars = [
            str(path)
            for pattern in ("flink-dist-*.jar", "log4j-*.jar")
            for path in sorted(lib.glob(pattern))
        ]
        jars.append(os.environ["SENTENCE_BEAM_FLINK_JAR"])
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        conf = self.folder / "conf"
        command = [
            "java", heap, *jvm, *opened, "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
            f"-Dlog4j.configurationFile={conf / 'log4j.properties'}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", ":".join(jars), main, "-c", str(conf), *after,
        ]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=self.env)

    def stop(self) -> None:
        """End every process, and the workers that TaskManagers left behind."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.end_workers()

    def end_workers(self) -> None:
        """End the Python workers, which are kept for a while after their job."""
        for pid in self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self, name: str) -> None:
        """`kill -9` of a JVM."""
        self.processes[name].kill()
        self.processes[name].wait()

    def workers(self) -> list[int]:
        """Process ids of the Python workers, known by the environment that they have from here."""
        mark = f"SENTENCE_BEAM_TEST_CLUSTER={self.folder}".encode()
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_worker = b"--provision_endpoint" in (proc / "cmdline").read_bytes()
                if is_worker and mark in (proc / "environ").read_bytes():
                    found.append(int(proc.name))
        return sorted(found)

    def get(self, path: str, method: str = "GET") -> Any:
        """What the REST interface answers."""
        request = urllib.request.Request(f"http://{self.address}/{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or b"{}")

    def wait_for_slots(self, count: int) -> None:
        """Return when so many slots are free."""
        wait(lambda: self.get("overview")["slots-available"] >= count, f"{count} slots")

    def jobs(self) -> dict[str, str]:
        """State of every job by its id."""
        return {job["id"]: job["status"] for job in self.get("jobs")["jobs"]}

    def running(self) -> list[str]:
        """Jobs that have not ended."""
        return [
            job
            for job, state in self.jobs().items()
            if state not in ("FINISHED", "FAILED", "CANCELED")
        ]

    def cancel(self) -> None:
        """Cancel every job, and return when they have ended."""
        for job in self.running():
            self.get(f"jobs/{job}?mode=cancel", "PATCH")
        wait(lambda: not self.running(), "the jobs to end")

    def failures(self, job: str) -> list[str]:
        """Why a job failed and was begun again, the last time first."""
        entries = self.get(f"jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        return [entry["stacktrace"].splitlines()[0] for entry in entries]


def _restarts() -> str:
    """The lines about restarts of the configuration that operators are given, but for the first
    wait: a lost process of this machine is there again at once.
    """
    lines = (ROOT / "deploy" / "flink" / "config.yaml").read_text().splitlines(keepends=True)
    start = lines.index("restart-strategy:\n")
    stop = next(n for n, line in enumerate(lines) if n > start and not line.startswith(" "))
    return "".join(lines[start:stop]).replace("initial-backoff: 10 s", "initial-backoff: 1 s")


@contextlib.contextmanager
def cluster(folder: Path, env: dict[str, str]) -> Iterator[Cluster]:
    """A cluster while the body runs; it is stopped whatever happens."""
    made = Cluster(folder, {**env, "SENTENCE_BEAM_TEST_CLUSTER": str(folder)})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def wait(condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Return when the condition holds; raises TimeoutError naming what was waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:g} s for {what}")
