"""The figures of a store's last run as OpenMetrics text, read by another program's parser."""

from dataclasses import replace

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sentence_beam.transforms.base.measures import STAGES, summarise_figures
from sentence_beam.transforms.report.openmetrics import format_openmetrics
from sentence_beam.transforms.report.run_history import RunSummary

MEASURES = {
    stage: summarise_figures(
        [{figure.name: 250.0 for figure in figures}, {figure.name: 750.0 for figure in figures}]
    )
    for stage, figures in STAGES.items()
}
RUN = RunSummary(
    "r", "committed", "2026-01-01T00:00:00Z", 90.0,
    rows=7, embedded=4, reused=2, duplicates=1, carried=0, rejected=3, recall=0.99, limit="write", measures=MEASURES,
)  # fmt: skip


def read(found: list[RunSummary], store: str = "/a/store") -> dict[tuple[str, ...], float]:
    """The values by name and labels; every one has the store's name."""
    values = {}
    for family in text_string_to_metric_families(format_openmetrics(store, found)):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("store") == store
            values[sample.name.removeprefix("sentence_beam_"), *labels.values()] = sample.value
    return values


def test_the_last_committed_run_is_told() -> None:
    failed = replace(RUN, run="s", status="failed", measures=None)
    values = read([replace(RUN, rows=1), RUN, failed])
    assert values["rows",] == 7
    assert [
        values["work_rows", name] for name in ("embedded", "reused", "duplicates", "carried")
    ] == [4, 2, 1, 0]
    assert (
        values["runs", "committed"],
        values["runs", "failed"],
        values["last_run_committed",],
    ) == (2, 1, 0)
    assert values["committed_timestamp_seconds",] == 1767225690
    assert values["recall",] == 0.99


def test_pieces_are_told_where_rows_are_documents() -> None:
    assert ("pieces",) not in read([RUN])
    values = read([replace(RUN, rows=2, pieces=7)])
    assert (values["rows",], values["pieces",]) == (2, 7)
    assert (
        sum(values["work_rows", name] for name in ("embedded", "reused", "duplicates", "carried"))
        == 7
    )


def test_times_are_in_seconds_and_the_limit_is_named() -> None:
    values = read([RUN])
    assert values["embed_read_seconds", "sum"] == 1
    assert values["embed_read_seconds", "p50"] == 0.25
    assert values["embed_unit_bytes", "max"] == 750
    assert {name[1] for name, value in values.items() if name[0] == "embed_limit" and value} == {
        "write"
    }
    told = {name[0] for name in values}
    assert all(
        f"{stage}_{f.name}".replace("_ms", "_seconds") in told
        for stage in STAGES
        for f in STAGES[stage]
    )


def test_what_is_not_known_has_no_line_and_names_are_text() -> None:
    assert read([]) == {}
    values = read([RunSummary("r", "committed", "2026-01-01T00:00:00Z", 1.0)], store='/a/"b"\\n\n')
    assert {name[0] for name in values} == {
        "runs", "last_run_committed", "committed_timestamp_seconds", "run_duration_seconds",
    }  # fmt: skip
