"""The page of scores: everything is text, nothing is fetched, and in a browser its tables sort."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.evaluation.scores_page import render_page

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
UNDEFINED = dict.fromkeys(
    ("score", "low", "high", "against", "diff", "diff_low", "diff_high", "p", "p_holm")
)


def row(pooler: str, score: float | None, **fields: Any) -> dict[str, Any]:
    """A row of scores."""
    base = {
        "task": "t",
        "kind": "sts",
        "metric": "spearman",
        "subset": "all",
        "pooler": pooler,
        "calibration": None,
    }
    found = base | {"dim": 24, "n": 1000, **UNDEFINED, "score": score}
    if score is not None:
        found |= {
            "low": score - 2,
            "high": score + 2,
            "diff": score - 50,
            "diff_low": score - 52,
            "diff_high": score - 48,
        }
    return found | {"p": 0.5, "p_holm": 1.0, "sentences_s": 100.0, "bytes_row": 96} | fields


ROWS = [
    row("mean", 50.0),
    row("cls", None),
    row("max", 9.5),
    row("<script>alert(1)</script>", 70.25, pearson=3.0),
]


def test_names_and_notes_are_text_and_nothing_is_fetched() -> None:
    found = render_page("a/<b>model</b>", ROWS, ["note & <i>note</i>"])
    assert "<script>alert(1)" not in found
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found
    assert "a/&lt;b&gt;model" in found
    assert "note &amp; &lt;i&gt;note" in found
    assert not re.search(r"(src|href|url|@import|fetch|http)\b\s*[=(:]\s*[\"']?\w", found)


def test_intervals_are_drawn_to_one_scale_and_undefined_ones_not_at_all() -> None:
    found = render_page("m", ROWS, [])
    ends = [
        tuple(map(float, pair))
        for pair in re.findall(r'class="range" x1="([\d.]+)" x2="([\d.]+)"', found)
    ]
    assert len(ends) == 6
    of_scores = ends[::2]
    assert min(low for low, _ in of_scores) == 4
    assert max(high for _, high in of_scores) == 156
    lengths = [high - low for low, high in ends]
    assert lengths[0] == pytest.approx(lengths[2], abs=0.2)


def test_heads_have_a_map() -> None:
    heads = [
        row(f"ditto:{block}-{head}", 10.0 * block + head) for block in (1, 2) for head in (1, 2, 3)
    ]
    found = render_page("m", heads, [], grid=(2, 3))
    cells = re.findall(r'--s:([\d.]+)">([\d.]+)<', found)
    assert [score for _, score in cells] == ["11.0", "12.0", "13.0", "21.0", "22.0", "23.0"]
    assert [float(share) for share, _ in (cells[0], cells[-1])] == [0, 1]


def test_subsets_have_a_table_of_their_own() -> None:
    found = render_page(
        "m",
        [row("mean", 50.0), row("mean", 40.0, subset="first"), row("mean", 45.0, subset="mean")],
        [],
    )
    assert found.count('<td class="told">first</td>') == 1


def in_browser(html: str, script: str, folder: Path) -> str:
    """The page's DOM after a script has run in it."""
    (folder / "page.html").write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}/profile",
    ]
    done = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", (folder / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_click_sorts_by_number_and_by_name_and_undefined_is_last(tmp_path: Path) -> None:
    script = """
      const out = [], heads = [...document.querySelectorAll("table.sortable th")];
      const names = () => [...document.querySelectorAll("table.sortable tbody tr")].map(r => r.cells[0].textContent[0]).join("");
      for (const [name, times] of [["score", 2], ["pooler", 2]])
        for (let i = 0; i < times; i++) {
          heads.find(h => h.textContent === name).querySelector("button").click();
          out.push(names());
        }
      document.title = out.join(" ");
    """
    found = in_browser(render_page("m", ROWS, []), script, tmp_path)
    assert re.search(r"<title>(.*)</title>", found)[1].replace("&lt;", "<") == "<mmc mm<c <cmm mmc<"
