"""SVG files of charts and heat maps: they parse, have every value, and escape names.

Covers transforms/report/pictures.py.
"""

from xml.etree import ElementTree

from sentence_beam.transforms.report.chart import Series, draw_compared_chart, heat_map
from sentence_beam.transforms.report.pictures import draw_charts, draw_heat_map


def series(*values: float | None) -> Series:
    labels = [str(number) for number in range(len(values))]
    return Series(labels, values, [False] * len(values), "{:g}".format)


def test_two_lines_share_an_axis() -> None:
    chart = draw_compared_chart(series(1, 3, None), series(3, 1, 2))
    assert chart.before[0] == chart.line[0][:1] + chart.line[1][1:]
    assert (len(chart.before), len(chart.line)) == (2, 3)
    assert [band.shown for band in chart.bands] == [
        "1 before, 3 after",
        "3 before, 1 after",
        " before, 2 after",
    ]
    assert not draw_compared_chart(series(None), series(None)).ticks


def test_charts_stand_side_by_side() -> None:
    chart = draw_compared_chart(series(1, 2), series(2, 1))
    drawn = ElementTree.fromstring(draw_charts("a < b", [("one", chart), ("two", chart)]))
    assert [text.text for text in drawn.findall("{*}text")] == ["a < b", "one", "two"]
    places = [int(panel.attrib["x"]) for panel in drawn.findall("{*}svg")]
    assert places[1] - places[0] >= chart.width
    assert places[1] + chart.width <= int(drawn.attrib["width"])


def test_a_heat_map_has_a_cell_for_each_known_value() -> None:
    found = heat_map("a & b", "", (["1", "2"], ["1", "2", "3"]), [[1, 2, 3], [4, None, 5]], 1)
    drawn = ElementTree.fromstring(draw_heat_map(found))
    cells = [cell.text for cell in drawn.findall(".//{*}rect/{*}title")]
    assert cells == ["1, 1", "1, 2", "1, 3", "2, 1", "2, 3"]
    texts = [text.text for text in drawn.findall("{*}text")]
    assert texts[0] == "a & b"
    assert [text for text in texts if text and "." in text] == ["1.0", "2.0", "3.0", "4.0", "5.0"]
