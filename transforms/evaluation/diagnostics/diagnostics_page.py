"""Render figures as one HTML file: charts, a plane of poolers, maps of heads, layers, tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from sentence_beam.transforms.evaluation.diagnostics.diagnosis import Diagnosis
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row
from sentence_beam.transforms.evaluation.scores_page import load_template
from sentence_beam.transforms.report.chart import Chart, HeatMap, Series, draw_line_chart, heat_map

SCALARS = (
    "mean-cosine",
    "uniformity",
    "effective-rank",
    "alignment",
    "spearman",
    "edit-distance",
    "auc",
    "agreement",
)
# the plane of poolers, in pixels
WIDTH = 420
HEIGHT = 300
MARGIN = 44


@dataclass(frozen=True)
class Dot:
    """A pooler in the plane: its place in pixels, its name, uniformity and alignment."""

    x: float
    y: float
    name: str
    uniformity: float
    alignment: float


def render_page(diagnosis: Diagnosis) -> str:
    """Return the page of a diagnosis as HTML."""
    rows = diagnosis.rows
    return load_template("diagnose.html").render(
        diagnosis=diagnosis,
        scalars=_select_scalars(rows),
        charts=_draw_charts(rows),
        planes=_draw_planes(rows),
        words=[
            row
            for row in rows
            if row["figure"] in ("norm", "neighbour-distance", "neighbour-product")
        ],
        maps=list(filter(None, (_map_heads(rows), _map_layers(rows), _map_impact(rows)))),
        chosen=next((row for row in rows if row["figure"] == "chosen-head"), None),
        influence=next((row for row in rows if row["figure"] == "influence-tfidf"), None),
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
    )


def _select_scalars(rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Return the rows with one value each, and their names beside the pooler."""
    return [
        (row, ", ".join(row[key] for key in ("task", "pairs", "other") if row.get(key)))
        for row in rows
        if row["figure"] in SCALARS
    ]


def _draw_charts(rows: Sequence[Row]) -> list[tuple[str, str, Chart]]:
    """Return name, remark and picture of the cosines and of the spectrum of each pooler."""
    drawn = []
    for pooler in dict.fromkeys(row["pooler"] for row in rows if row["pooler"] is not None):
        own = [row for row in rows if row["pooler"] == pooler]
        shares = [row for row in own if row["figure"] == "cosine-share"]
        if shares:
            remark = f"cosines, % of the pairs of {shares[0]['n']:,} rows"
            drawn.append((pooler, remark, _draw_cosines(shares)))
        deviations = [row for row in own if row["figure"] == "deviation"]
        if deviations:
            drawn.append((pooler, "deviation by component", _draw_deviations(deviations)))
    return drawn


def _draw_cosines(shares: Sequence[Row]) -> Chart:
    labels = [f"{row['low']:.2f} to {row['high']:.2f}" for row in shares]
    return _draw_line(labels, [100 * row["value"] for row in shares])


def _draw_deviations(deviations: Sequence[Row]) -> Chart:
    labels = [f"component {row['component']}" for row in deviations]
    return _draw_line(labels, [row["value"] for row in deviations])


def _draw_line(labels: list[str], values: list[float | None]) -> Chart:
    series = Series(labels, values, [False] * len(values), lambda value: f"{value:.3g}")
    return draw_line_chart(series)


def _draw_planes(rows: Sequence[Row]) -> list[tuple[str, list[Dot]]]:
    """Return for each task the poolers by uniformity (to the right) and alignment (upwards).

    Lower is better in both.
    """
    uniformity = {row["pooler"]: row["value"] for row in rows if row["figure"] == "uniformity"}
    planes = []
    aligned = [row for row in rows if row["figure"] == "alignment" and row["value"] is not None]
    for task in dict.fromkeys(row["task"] for row in aligned):
        points = [
            (uniformity[row["pooler"]], row["value"], row["pooler"])
            for row in aligned
            if row["task"] == task and uniformity.get(row["pooler"]) is not None
        ]
        across = [point[0] for point in points]
        up = [point[1] for point in points]
        dots = [
            Dot(_place(u, across, WIDTH), HEIGHT - _place(a, up, HEIGHT), name, u, a)
            for u, a, name in points
        ]
        planes.append((task, dots))
    return planes


def _place(value: float, values: Sequence[float], size: int) -> float:
    least = min(values)
    most = max(values)
    share = (value - least) / (most - least) if most > least else 0.5
    return round(MARGIN + (size - 2 * MARGIN) * share, 1)


def _map_heads(rows: Sequence[Row]) -> HeatMap | None:
    shares = {(row["layer"], row["head"]): row for row in rows if row["figure"] == "head"}
    if not shares:
        return None
    blocks = sorted({block for block, _ in shares})
    heads = sorted({head for _, head in shares})
    values = [[shares[block, head]["value"] for head in heads] for block in blocks]
    first = next(iter(shares.values()))
    remark = (
        f"Pearson's correlation (times 100) over {first['n']:,} tokens; words from {first['words']}"
    )
    return heat_map(
        "Attention of a token to itself beside TF-IDF: block by head",
        remark,
        (list(map(str, blocks)), list(map(str, heads))),
        values,
        0,
    )


def _map_layers(rows: Sequence[Row]) -> HeatMap | None:
    cosines = {(row["layer"], row["other"]): row for row in rows if row["figure"] == "layer-cosine"}
    if not cosines:
        return None
    layers = sorted({layer for layer, _ in cosines})
    values = [[cosines[one, other]["value"] for other in layers] for one in layers]
    remark = (
        f"mean cosine of {cosines[0, 0]['n']:,} tokens' states in two layers; 0 is what enters the"
        " first block"
    )
    names = list(map(str, layers))
    return heat_map("Layer by layer", remark, (names, names), values, 2)


def _map_impact(rows: Sequence[Row]) -> HeatMap | None:
    impacts = [row for row in rows if row["figure"] == "impact"]
    if not impacts:
        return None
    size = impacts[0]["n"]
    names = [row["perturbed"] for row in impacts[:size]]
    values = [[row["value"] for row in impacts[i * size : (i + 1) * size]] for i in range(size)]
    remark = (
        "how far the state of a masked token (row) moves when another one (column) is masked too"
    )
    return heat_map("Impact of each token on the others", remark, (names, names), values, 1)
