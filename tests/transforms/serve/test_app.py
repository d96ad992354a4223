"""A served store: hits as `search` has them, bounds, headers, a page in a browser, and snapshots
that come and go.

Covers transforms/serve/followed.py.
Covers transforms/serve/server_metrics.py.
Covers transforms/serve/try_page.py.
Covers transforms/serve/question.py.
Covers transforms/serve/server.py.
"""

import contextlib
import html
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pyarrow as pa
import pytest
import uvicorn
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.gcs import Gcs
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.serve.app import Application
from sentence_beam.transforms.serve.followed import Followed
from sentence_beam.transforms.serve.question import MOST_CHARACTERS
from sentence_beam.transforms.serve.server import bound, configure
from sentence_beam.transforms.store import open_store

OFTEN = 0.05  # seconds between looks at the store
NEVER = 3600.0


@dataclass(frozen=True)
class Served:
    """What is served, the server's address, and a client of it."""

    followed: Followed
    application: Application
    address: str
    client: httpx.Client

    def get(self, path: str, **params: object) -> httpx.Response:
        """What a request gives."""
        return self.client.get(path, params={name: str(value) for name, value in params.items()})

    def ids(self, **params: object) -> list[str]:
        """The ids of hits."""
        return [
            hit["id"]
            for hit in self.get("/similar" if "id" in params else "/search", **params).json()[
                "hits"
            ]
        ]

    def until(self, run: str) -> None:
        """Wait until a run's snapshot is searched."""
        end = time.monotonic() + 60
        while self.get("/healthz").json()["run"] != run:
            assert time.monotonic() < end, self.get("/healthz").json()
            time.sleep(0.02)


@contextlib.contextmanager
def serving(
    store: object, every: float = OFTEN, root_path: str = "", **how: str | None
) -> Iterator[Served]:
    """A store's server; `how` are further arguments of `Followed`."""
    followed = Followed(str(store), **how)
    application = Application(followed, every, root_path)
    server = uvicorn.Server(configure(application, loopback=True))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            with httpx.Client(base_url=address, timeout=60, verify=False) as client:
                yield Served(followed, application, address, client)
        finally:
            server.should_exit = True
            thread.join()


CHROMIUM = shutil.which("chromium")
EVIL = "<script>document.title = 'owned'</script> a red horse & a \"dog\""
LANGS = ["en", "de", None]
pytestmark = pytest.mark.usefixtures("plain_beam")


def write(path: Path, numbers: range, *more: str) -> None:
    """Rows whose number says all of them, and further texts."""
    texts = [*sentences(len(numbers), numbers.start), *more]
    keys = [*(f"k{n}" for n in numbers), *(f"more{n}<i>" for n in range(len(more)))]
    write_parquet(path, texts, key=keys, lang=[LANGS[n % 3] for n in range(len(texts))])


def embed(folder: Path, model: Path, *options: object) -> Path:
    """The store of a folder's files, brought up to date."""
    command = [
        "embed",
        "--input",
        folder / "in" / "*.parquet",
        "--store",
        folder / "store",
        "--model",
        model,
    ]
    command += [
        "--id-column",
        "key",
        "--keep-columns",
        "lang",
        "--dtype",
        "float32",
        "--max-deletes",
        "1",
        *options,
    ]
    assert main([str(word) for word in command]) == 0
    return folder / "store"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with an index, of which one text is a script."""
    folder = tmp_path_factory.mktemp("served")
    write(folder / "in" / "a.parquet", range(40), EVIL)
    return embed(folder, model, "--index", "Flat")


@pytest.fixture(scope="module")
def served(made: Path) -> Any:
    """The store, served."""
    with serving(made, NEVER) as found:
        yield found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """The folder of a store without an index."""
    folder = tmp_path_factory.mktemp("plain")
    write(folder / "in" / "a.parquet", range(12))
    embed(folder, model)
    return folder


@pytest.fixture
def own(plain: Path, tmp_path: Path) -> Path:
    """A copy of that folder of the test's own."""
    return shutil.copytree(plain, tmp_path / "own")


# --- hits


def test_hits_are_those_of_a_search_each_with_its_text(served: Served, made: Path) -> None:
    store = open_store(str(made))
    for params in (
        {"q": "a red horse", "k": 3},
        {"q": "dog"},
        {"q": "dog", "where": "lang = 'en'", "k": 100},
    ):
        found = served.get("/search", **params)
        assert found.headers["content-type"] == "application/json"
        expected = store.search(
            str(params["q"]), int(str(params.get("k", 10))), where=params.get("where")
        )
        assert found.json() == {"hits": expected}
        assert list(found.json()["hits"][0])[:4] == ["rank", "id", "score", "text"]
    assert served.get("/search", q="dog", where="lang = 'zz'").json() == {"hits": []}


def test_rows_like_a_row(served: Served, made: Path) -> None:
    expected = open_store(str(made)).search(ids=["k7"], k=4)[0]
    assert served.get("/similar", id="k7", k=4).json() == {"hits": expected}
    assert "k7" not in served.ids(id="k7", k=100)
    assert served.get("/similar", id="more0<i>", k=1, where="lang IS NULL").status_code == 200


@pytest.mark.parametrize(
    ("path", "params", "status", "said"),
    [
        ("/search", {}, 400, "q is missing"),
        ("/search", {"q": " "}, 400, "q is missing or empty"),
        ("/search", {"q": "x", "k": "0"}, 400, "k is '0'"),
        ("/search", {"q": "x", "k": "101"}, 400, "from 1 to 100"),
        ("/search", {"q": "x", "k": "9" * 5000}, 400, "k is '999"),
        ("/search", {"q": "x", "k": "²"}, 400, "k is '²'"),
        ("/search", {"q": "x", "top": "3"}, 400, "no parameter 'top'; there are q, k, where"),
        ("/search", {"q": ["x", "y"]}, 400, "q is given twice"),
        (
            "/search",
            {"q": "x", "where": "year = 1"},
            400,
            "where: there is no column year; the store keeps id (string)",
        ),
        (
            "/search",
            {"q": "x", "where": "lang = \n'en' AND"},
            400,
            "where cannot be read at its end",
        ),
        ("/search", {"q": "x" * (MOST_CHARACTERS + 1)}, 413, "8,000 are the most"),
        ("/search", {"q": "x" * 60_000}, 413, "the address has 60,0"),
        ("/similar", {}, 400, "id is missing"),
        ("/similar", {"id": "k99\n"}, 404, "no row with the id 'k99\\n'"),
        ("/nowhere", {}, 404, "there is no /nowhere; there are /, /search, /similar"),
    ],
)
def test_a_bad_request_is_a_line(
    served: Served, path: str, params: dict[str, Any], status: int, said: str
) -> None:
    found = served.client.get(path, params=params)
    assert found.status_code == status
    assert found.text.count("\n") == 1
    assert said in found.json()["error"]
    if path in ("/search", "/similar") and params and status != 413:
        page = served.client.get("/", params=params)
        assert page.status_code == status
        assert page.text.count('role="alert"') == 1


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("q=%ff", "'q' has the byte %FF"),
        ("q=caf%E9", "'q' has the byte %E9"),
        ("q=%ed%a0%80", "'q' has the byte %ED"),
        ("q=dog&where=lang%3D'%c3'", "'where' has the byte %C3"),
        ("id=%80", "'id' has the byte %80"),
        ("q=dog&%fe=1", "'\\udcfe' has the byte %FE"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused(served: Served, query: str, name: str) -> None:
    for path in ("/search", "/similar"):
        found = served.client.get(f"{path}?{query}")
        assert (found.status_code, found.text.count("\n")) == (400, 1)
        assert f"{name}, which is not UTF-8" in found.json()["error"]
    page = served.client.get(f"/?{query}")
    assert page.status_code == 400
    assert page.text.count('role="alert"') == 1
    assert "�" not in page.text


def test_text_that_is_utf8_arrives_as_it_is(served: Served) -> None:
    for text in ("café", "中文 🙂", "a+b&c=%ff", "�"):
        found = served.get("/", q=text).text
        assert f'value="{html.escape(text)}"' in found


class _Links(HTMLParser):
    """The links of a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        links = [value for name, value in attributes if name in ("href", "action")]
        self.found += [link for link in links if link and not link.startswith("data:")]


@pytest.mark.parametrize(
    ("root_path", "opened", "strips"),
    [
        ("", "/", True),
        ("", "/team/store/", True),
        ("/team/store", "/team/store/", True),
        ("/team/store", "/team/store", True),
        ("/team/store", "/team/store/", False),
        ("/team/store", "/team/store", False),
    ],
)
def test_links_work_behind_a_proxy(made: Path, root_path: str, opened: str, strips: bool) -> None:
    prefix = opened.rstrip("/")

    def asked(client: httpx.Client, link: str) -> httpx.Response:
        """The answer by way of a proxy that forwards what is under the prefix."""
        path = link.removeprefix("http://proxy")
        assert path.startswith(prefix)
        if strips:
            path = path.removeprefix(prefix)
        return client.get(path if path.startswith("/") else f"/{path}")

    with serving(made, NEVER, root_path) as found:
        for query in ("", "?q=dog&k=2", "?id=k7"):
            here = f"http://proxy{opened}{query}"
            links = _Links(asked(found.client, here).text).found
            assert len(links) >= 3
            for link in links:
                answer = asked(found.client, urljoin(here, link))
                assert answer.status_code == 200, link
        metrics = asked(found.client, f"http://proxy{prefix}/metrics").text
        assert 'requests_total{route="/search",status="200"}' in metrics
        assert 'route="other"' not in metrics
        assert found.client.get(f"{root_path}s/search").status_code == 404


def test_what_else_is_refused(served: Served) -> None:
    assert "ask by GET" in served.client.post("/search").json()["error"]
    assert served.client.delete("/").status_code == 405
    assert served.client.request("GET", "/search?q=x", content=b"{}").status_code == 413
    assert served.client.request("GET", "/search?q=x", content=iter([b"{}"])).status_code == 413
    for host in ("evil.example", "evil.example:80", ""):  # whose name may lead here
        assert served.client.get("/healthz", headers={"Host": host}).status_code == 400
    for host in ("LOCALHOST:1", "[::1]:80", "127.0.0.1"):
        assert served.client.get("/healthz", headers={"Host": host}).status_code == 200


def test_every_answer_has_the_headers_of_security(served: Served) -> None:
    for path in (
        "/",
        "/?q=dog",
        "/search?q=dog",
        "/search",
        "/report",
        "/healthz",
        "/metrics",
        "/style.css",
        "/nowhere",
    ):
        headers = served.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "script" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers


# --- the page


def test_the_page_has_no_markup_of_a_store_or_a_request(served: Served) -> None:
    found = served.get("/", q=EVIL, where="lang IS NULL OR lang = '<b>' OR id <> '\"'", k=50).text
    assert "<script" not in found
    assert "&lt;<mark>script</mark>&gt;<mark>document</mark>.<mark>title" in found
    assert "more0&lt;i&gt;" in found
    assert (
        'value="lang IS NULL OR lang = &#39;&lt;b&gt;&#39; OR id &lt;&gt; &#39;&#34;&#39;"' in found
    )
    assert 'href="/?id=more0%3Ci%3E&amp;k=50' in found or "id=more0%3Ci%3E" in found
    assert "<script" not in served.get("/", id="<script>").text
    assert "<script" not in served.get("/report").text
    assert "inner use" in served.get("/").text


def test_the_page_is_headed_by_the_name_and_has_filters_of_its_own_columns(
    served: Served, made: Path
) -> None:
    found = served.get("/").text
    assert "<h1>store</h1>" in found
    assert f"<code>{made}</code>" in found
    assert "For example <code>lang = &#39;en&#39;</code>." in found
    assert served.get("/search", q="dog", where="lang = 'en'").json()["hits"]


def test_a_filter_that_wants_no_row_is_said(served: Served) -> None:
    assert "no rows match the filter" in served.get("/", q="dog", where="lang = 'zz'").text
    assert "no other rows match the filter" in served.get("/", id="k7", where="lang = 'zz'").text
    assert "no rows match" not in served.get("/", q="dog").text


def test_the_row_that_others_are_like_is_shown(served: Served) -> None:
    found = served.get("/", id="k7", k=2).text
    assert found.index("the row</span> <code>k7</code>") < found.index('class="rank">1<')
    assert sentences(1, 7)[0] in found


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_in_a_browser_a_text_that_is_a_script_is_a_text(served: Served, tmp_path: Path) -> None:
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
    ]
    address = str(httpx.URL(f"{served.address}/", params={"q": EVIL, "k": "2"}))
    done = subprocess.run(
        [str(CHROMIUM), *options, f"--user-data-dir={tmp_path}/profile", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "<title>&lt;script&gt;document.title = 'owned'" in done.stdout
    assert (
        '<p class="text">&lt;<mark>script</mark>&gt;<mark>document</mark>.<mark>title'
        in done.stdout
    )
    assert "<script" not in done.stdout
    # the page needs nothing that its own rules forbid
    assert "Content Security Policy" not in done.stderr


# --- many clients


def test_fifty_clients_at_once_have_their_own_answers(served: Served, made: Path) -> None:
    texts = sentences(50)
    own = [[hit["id"] for hit in hits] for hits in open_store(str(made)).search(texts, 3)]
    before = served.get("/metrics").text
    ready = threading.Barrier(len(texts))

    def ask(text: str) -> list[str]:
        with httpx.Client(base_url=served.address, timeout=60, verify=False) as client:
            ready.wait()
            return [
                hit["id"]
                for hit in client.get("/search", params={"q": text, "k": "3"}).json()["hits"]
            ]

    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(ask, texts)) == own
    after = served.get("/metrics").text
    questions, batches = (
        figure(after, name) - figure(before, name) for name in ("questions_total", "batches_total")
    )
    assert questions == len(texts)
    assert batches < len(texts)


def figure(text: str, name: str, **labels: str) -> float:
    """A figure of the metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    (found,) = [
        s.value for s in samples if s.name == f"sentence_beam_serve_{name}" and s.labels == labels
    ]
    return found


def test_metrics_count_requests_and_tell_the_snapshot(served: Served) -> None:
    served.get("/search", q="dog")
    served.get("/search", q="")
    before = served.get("/metrics").text
    served.get("/search", q="dog")
    served.get("/search", q="")
    after = served.get("/metrics").text

    def grown(name: str, **labels: str) -> float:
        return figure(after, name, **labels) - figure(before, name, **labels)

    assert grown("requests_total", route="/search", status="200") == 1
    assert grown("requests_total", route="/search", status="400") == 1
    assert (
        grown("request_seconds_count", route="/search")
        == grown("request_seconds_bucket", route="/search", le="+Inf")
        == 2
    )
    assert figure(after, "rows") == 41
    assert figure(after, "follows") == 1


# --- snapshots that come and go


def test_a_new_snapshot_is_followed_with_the_model_that_is_loaded(
    own: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(own / "store") as served:
        assert served.get("/healthz").json()["status"] == "ok"
        first = manifest_of(own / "store")["run"]
        write(own / "in" / "b.parquet", range(20, 30))
        embed(own, model, "--index", "Flat")
        monkeypatch.setattr(Encoder, "from_recipe", None)
        served.until(manifest_of(own / "store")["run"])
        assert served.ids(q=sentences(1, 25)[0], k=1) == ["k25"]
        assert main(["rollback", first, "--store", str(own / "store")]) == 0
        served.until(manifest_of(own / "store")["run"])
        assert served.ids(q=sentences(1, 25)[0], k=1) != ["k25"]
        assert served.get("/healthz").json()["rows"] == 12


def test_files_that_a_vacuum_removed_before_anybody_looked(own: Path, model: Path) -> None:
    with serving(own / "store", NEVER) as served:
        (own / "in" / "a.parquet").unlink()
        write(own / "in" / "b.parquet", range(20, 30))
        embed(own, model)
        assert main(["vacuum", "--store", str(own / "store"), "--keep", "1"]) == 0
        assert served.ids(q=sentences(1, 25)[0], k=1) == ["k25"]
        assert served.get("/healthz").json()["rows"] == 10


def test_a_store_that_is_gone_for_a_while(own: Path) -> None:
    with serving(own / "store", NEVER) as served:
        (own / "store").rename(own / "elsewhere")
        served.followed.look()
        state = served.get("/healthz").json()
        assert (state["status"], state["rows"]) == ("stale", 12)
        assert state["problem"].startswith(f"{own / 'store'} holds no store")
        assert "holds no store" in served.get("/").text
        assert figure(served.get("/metrics").text, "follows") == 0
        failed = served.get("/search", q="dog")
        assert (failed.status_code, failed.headers["retry-after"]) == (503, "1")
        assert "cannot be read" in failed.json()["error"]
        assert served.get("/", q="dog").status_code == 503
        (own / "elsewhere").rename(own / "store")
        assert len(served.ids(q="dog", k=3)) == 3
        served.followed.look()
        assert served.get("/healthz").json()["status"] == "ok"


def test_another_model_is_followed_and_one_of_another_space_is_not(
    own: Path, model: Path, tmp_path: Path
) -> None:
    other = save_tiny_model("mpnet", tmp_path / "other")
    with pytest.raises(SpaceMismatchError, match="is not the model of"):
        serving(own / "store", model=str(other)).__enter__()
    with (
        serving(own / "store", NEVER) as served,
        serving(own / "store", NEVER, model=str(model)) as named,
    ):
        embed(own, other, "--reembed")
        for server in (served, named):
            server.followed.look()
        expected = open_store(str(own / "store")).search("a red horse", 3)
        assert served.get("/search", q="a red horse", k=3).json() == {"hits": expected}
        state = named.get("/healthz").json()
        assert (state["status"], "is not the model of" in state["problem"]) == ("stale", True)
        assert len(named.ids(q="dog", k=3)) == 3  # of the snapshot before


# --- stores of all kinds


def test_a_store_without_texts_with_values_that_json_lacks_and_then_without_rows(
    run: Run, tmp_path: Path, model: Path
) -> None:
    odd: dict[str, Any] = {"odd": [float("nan"), float("inf")], "raw": [b"\xff", None]}
    write_parquet(tmp_path / "in" / "a.parquet", ["dog", "cat"], **odd)
    how = [
        "--input",
        tmp_path / "in" / "*.parquet",
        "--store",
        tmp_path / "store",
        "--model",
        model,
        "--no-keep-text",
    ]
    run("embed", *how, "--keep-columns", "odd,raw").ok()
    with serving(tmp_path / "store", NEVER) as served:
        found = served.get("/search", q="dog").text
        hits = json.loads(found, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))[
            "hits"
        ]
        assert [hit["text"] for hit in hits] == [None] * 2
        assert {(hit["odd"], hit["raw"]) for hit in hits} == {(None, "ff"), (None, None)}
        assert served.get("/", q="dog").status_code == 200
        write_parquet(
            tmp_path / "in" / "a.parquet",
            [],
            odd=pa.array([], pa.float64()),
            raw=pa.array([], pa.binary()),
        )
        run("embed", *how, "--max-deletes", 1).ok()
        served.followed.look()
        assert served.get("/search", q="dog", where="any").json() == {"hits": []}
        assert served.get("/similar", id="x").status_code == 404
        assert "no rows" in served.get("/", q="dog").text


def test_documents_are_found_once_with_a_passage(run: Run, tmp_path: Path, model: Path) -> None:
    texts = [". ".join(f"{text} number {part}" for part in range(6)) + "." for text in sentences(6)]
    write_parquet(tmp_path / "in.parquet", texts)
    run(
        "embed",
        "--input",
        tmp_path / "in.parquet",
        "--store",
        tmp_path / "store",
        "--model",
        model,
        "--chunks",
        "sentences",
    ).ok()
    with serving(tmp_path / "store", NEVER) as served:
        found = served.get("/search", q="number 3", k=6).json()["hits"]
        assert found == open_store(str(tmp_path / "store")).search("number 3", 6)
        assert len({hit["id"] for hit in found}) == 6
        page = served.get("/", q="number 3", k=6).text
        assert "piece " in page
        assert found[0]["passage"].splitlines()[0] in page.replace("<mark>", "").replace(
            "</mark>", ""
        )
        like = served.get("/", id=found[0]["id"], k=1).text
        assert "piece 1 of " in like[like.index("the row") :]


def test_a_store_on_gs(
    gcs: Gcs, gs: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for path in sorted(path for path in made.rglob("*") if path.is_file()):
        storage.overwrite(f"{gs}/store/{path.relative_to(made)}", path.read_bytes())
    with serving(f"{gs}/store", NEVER) as served:
        assert served.ids(q="dog", k=5) == [
            hit["id"] for hit in open_store(str(made)).search("dog", 5)
        ]
        with gcs.failing(refused="GET"):
            served.followed.look()
            assert served.get("/healthz").json()["status"] == "stale"
            failed = served.get("/search", q="dog", k=5)
            assert (failed.status_code, failed.text.count("\n")) == (503, 1)
        assert len(served.ids(q="dog", k=5)) == 5


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no store"):
        serving(tmp_path).__enter__()


def test_a_listening_socket_is_told_to_be_tcps() -> None:
    """asyncio turns off waiting for full packets on no other."""
    with bound("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
