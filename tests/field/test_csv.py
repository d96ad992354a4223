"""CSV and TSV as people have them.

Covers transforms/corpus/formats/csv_dialect.py.
Covers transforms/corpus/formats/csv_lines.py.
Covers transforms/corpus/formats/csv_readings.py.
Covers transforms/corpus/formats/csv_samples.py.
Covers transforms/corpus/formats/dialect.py.
Covers transforms/corpus/formats/separated.py.
Covers transforms/corpus/syntax.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.field import Written, file_of, read_as, rows_of
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import read_values
from sentence_beam.transforms.corpus.formats.registry import choose_reader
from sentence_beam.transforms.corpus.syntax import CsvSyntax

NUMBERED = [(str(number), f"passage {number} about rivers") for number in range(1, 13)]


def lines(delimiter: str, *changed: tuple[int, str]) -> bytes:
    """Numbered rows without quotes, some with another text."""
    rows = dict(NUMBERED) | {str(number): text for number, text in changed}
    header = f"id{delimiter}text\n"
    return (header + "".join(f"{key}{delimiter}{text}\n" for key, text in rows.items())).encode()


def numbered(*changed: tuple[int, str]) -> list[tuple[str, str]]:
    """The rows that `lines` writes."""
    return list((dict(NUMBERED) | {str(number): text for number, text in changed}).items())


LONE = ((4, '"No end has this quote'), (9, 'nor a beginning this one"'))
TITLES = ((3, '"Heroes"'), (5, '"Hello" he said'), (8, 'the 5" pipe'))
WRITTEN = [
    # quotes as characters
    Written("MS MARCO", lines("\t", *LONE), numbered(*LONE), "a.tsv"),
    Written("awk, with commas", lines(",", *LONE), numbered(*LONE)),
    Written("psql -A, with bars", lines("|", *LONE), numbered(*LONE)),
    Written("a scraper, titles in quotes", lines("\t", *TITLES), numbered(*TITLES), "a.tsv"),
    Written("a script, most quotes inside", lines(";", *TITLES[1:]), numbered(*TITLES[1:])),
    Written(
        "STS benchmark",
        b'score\tone\ttwo\n5.0\t"A man sings.\tA man is singing.\n1\tA dog"\tTwo "dogs"\n',
        [("5.0", '"A man sings.', "A man is singing."), ("1", 'A dog"', 'Two "dogs"')],
        "a.tab",
        ("score", "one", "two"),
    ),
    # quotes around values
    Written(
        "Python's csv",
        b'id,text\r\n1,"a, b"\r\n2,"he said ""hi"""\r\n3,"two\r\nlines"\r\n4,\r\n',
        [("1", "a, b"), ("2", 'he said "hi"'), ("3", "two\r\nlines"), ("4", "")],
    ),
    Written(
        "csv.unix_dialect", b'"id","text"\n"1","one"\n"2","a\nb"\n', [("1", "one"), ("2", "a\nb")]
    ),
    Written(
        "Excel, German",
        b'\xef\xbb\xbfid;text\r\n1;"Preis: 3,50; teuer"\r\n2;K\xc3\xa4se, Wurst\r\n',
        [("1", "Preis: 3,50; teuer"), ("2", "Käse, Wurst")],
    ),
    Written(
        "Excel, Unicode text",
        'id\ttext\r\n1\t"a ""b"" c"\r\n2\tKäse\r\n'.encode("utf-16"),
        [("1", 'a "b" c'), ("2", "Käse")],
        "a.tsv",
    ),
    Written(
        "Excel for the Mac",
        b'id,text\r1,one\r2,"a, b"\r',
        [("1", "one"), ("2", "a, b")],
    ),
    Written(
        "pandas with its index",
        b',id,text\n0,a,one\n1,b,"two, three"\n',
        [("a", "one"), ("b", "two, three")],
    ),
    Written(
        "R's write.csv",
        b'"","id","text"\n"1",1,"first one"\n"2",2,NA\n"3",3,"with ""quotes"""\n',
        [("1", "first one"), ("2", "NA"), ("3", 'with "quotes"')],
    ),
    Written(
        "a forum dump",
        b'id,text\na,"roses, red\nviolets are blue\n\nthe end"\nb,short\nc,"x\ny, z, w"\n',
        [("a", "roses, red\nviolets are blue\n\nthe end"), ("b", "short"), ("c", "x\ny, z, w")],
    ),
    Written(
        "a TSV with quotes where needed",
        b'id\ttext\n1\t"a\tb"\n2\t"say ""hi"""\n3\tplain\n',
        [("1", "a\tb"), ("2", 'say "hi"'), ("3", "plain")],
        "a.tsv",
    ),
    Written(
        "Snowflake, all values in quotes",
        b'"id"|"text"\n"1"|"one"\n"2"|"two | three"\n',
        [("1", "one"), ("2", "two | three")],
    ),
    Written(
        "JSON in a column",
        b'id,meta,text\n1,"{""a"": ""b, c""}",one\n2,"{}",two\n',
        [("1", '{"a": "b, c"}', "one"), ("2", "{}", "two")],
        header=("id", "meta", "text"),
    ),
    Written(
        "Windows paths",
        b'id,text\n1,"C:\\dir\\"\n2,"see C:\\x, D:\\y"\n3,\\\\server\\share\n',
        [("1", "C:\\dir\\"), ("2", "see C:\\x, D:\\y"), ("3", "\\\\server\\share")],
    ),
    # backslashes that escape
    Written(
        "Spark",
        b'id,text\n1,"He said \\"hi\\" to me"\n2,plain row\n3,"a, b\\\\"\n4,C:\\\\x\n5,"a ""b"\n',
        [
            ("1", 'He said "hi" to me'),
            ("2", "plain row"),
            ("3", "a, b\\"),
            ("4", "C:\\\\x"),
            ("5", 'a "b'),
        ],
    ),
    Written(
        "Spark, all values in quotes",
        b'"id","text"\n"1","say \\"hi\\""\n"2","a\\\\b"\n"3","x\ny \\"z\\", w"\n',
        [("1", 'say "hi"'), ("2", "a\\b"), ("3", 'x\ny "z", w')],
    ),
    Written(
        "MySQL, INTO OUTFILE",
        b"1\tone\\\ttwo\n2\ta\\\\b \\\nc\n3\t\\N\n4\tx\\ny\n",
        [("1", "one\ttwo"), ("2", "a\\b \nc"), ("3", ""), ("4", "x\ny")],
        "a.tsv",
        options={"csv": "quote=none,escape=\\,columns=id/text"},
    ),
    # rows that are wrong
    Written(
        "one bad quote",
        b"id,text\n" + b"".join(b'%d,"row %d"\n' % (i, i) for i in range(9)) + b'9,"5" pipe"\n',
        [*((str(i), f"row {i}") for i in range(9)), "!"],
    ),
    Written(
        "a quote without an end",
        b'id,text\n1,"a ""b"""\n2,"c, d"\n3,"never ends\n4,"e"\n5,f\n6,g\n',
        [("1", 'a "b"'), ("2", "c, d"), "!", ("4", "e"), ("5", "f"), ("6", "g")],
    ),
    Written(
        "a quote without an end near the end",
        b'id,text\n1,"a ""b"""\n2,"c, d"\n3,"never ends\n4,e\n5,f\n',
        [("1", 'a "b"'), ("2", "c, d"), "!", ("4", "e"), ("5", "f")],
    ),
    Written(
        "lines with a delimiter too many",
        b"id,text\n1,one\n2,two, three\n3,four\n4,five\n",
        [("1", "one"), "!", ("3", "four"), ("4", "five")],
    ),
    # delimiters
    Written(
        "one column whose texts hold commas",
        b"text\nyes, no\nplain\na, b, c\nd; e\n",
        [("yes, no",), ("plain",), ("a, b, c",), ("d; e",)],
        header=("text",),
    ),
    Written(
        "one column with quotes where needed",
        b'text\n"yes, no"\nplain\n"two\nlines"\n',
        [("yes, no",), ("plain",), ("two\nlines",)],
        header=("text",),
    ),
    Written(
        "semicolons inside of a column's name",
        b"id,text;of;many;words\n1,one\n2,two\n",
        [("1", "one"), ("2", "two")],
        header=("id", "text;of;many;words"),
    ),
    Written(
        "commas in texts between bars",
        b"id|text, title, body, more\n1|a, b\n2|c\n3|d, e, f\n",
        [("1", "a, b"), ("2", "c"), ("3", "d, e, f")],
        header=("id", "text, title, body, more"),
    ),
    Written(
        "Hive",
        b"id\x01text\n1\x01one, two\n",
        [("1", "one, two")],
        options={"delimiter": "\x01"},
    ),
    # above the header
    Written("Excel with sep=", b"sep=;\r\nid;text\r\n1;a, b\r\n", [("1", "a, b")]),
    Written("blank lines", b"\n\r\nid,text\n1,one\n", [("1", "one")]),
    Written(
        "a query tool",
        b"# made by hand\n# on Monday, at noon, in the rain\n\nid,text\n1,one\n2,# two\n",
        [("1", "one"), ("2", "# two")],
    ),
    Written("Samtools", b"##version 4\n#id\ttext\n1\tone\n", [("1", "one")], "a.tsv"),
    Written(
        "a query tool, a comment with as many values",
        b"# exported, yesterday\nid,text\n1,one\n2,two\n",
        [("1", "one"), ("2", "two")],
    ),
    Written(
        "names of several lines",
        b'"the\nid",text\n1,one\n',
        [("1", "one")],
        header=("the\nid", "text"),
    ),
    Written("a header with a mark", b"# id,text\n1,one\n2,two\n", [("1", "one"), ("2", "two")]),
    Written(
        "a report with a title",
        b"Report of 2026\nby someone\nid,text\n1,one\n",
        [("1", "one")],
        options={"csv": "skip=2"},
    ),
    Written(
        "MS MARCO without a header",
        b'0\tThe first\n1\t"The second\n',
        [("0", "The first"), ("1", '"The second')],
        "collection.tsv",
        options={"csv": "columns=id/text"},
    ),
    Written(
        "a column that is not read",
        b'0,x,The first\n1,y,"The, second"\n',
        [("0", "The first"), ("1", "The, second")],
        options={"csv": "columns=id/-/text"},
    ),
    # encodings
    Written(
        "PowerShell, UTF-16 without a mark",
        'id,text\r\n1,"a, b"\r\n2,Käse\r\n'.encode("utf-16-le"),
        [("1", "a, b"), ("2", "Käse")],
    ),
    Written(
        "Java, UTF-16 without a mark",
        "id\ttext\n1\tкошка\n2\tсобака бежит\n".encode("utf-16-be"),
        [("1", "кошка"), ("2", "собака бежит")],
        "a.tsv",
    ),
    Written("a NUL in UTF-8", b"id,text\n1,a\0b c d e\n", [("1", "a\0b c d e")]),
    # nearly nothing
    Written("a header alone", b"id,text\n", []),
    Written("a header alone in quotes", b'"id";"text"', []),
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written.by)
def test_rows(tmp_path: Path, written: Written) -> None:
    file = written.file_in(tmp_path)
    assert rows_of(file, written.header) == written.rows


ROWS = 30_000  # some 1.5 MB, of which half is in no sample
AT = ROWS // 4


def many(changed: dict[int, str], delimiter: str = ",") -> bytes:
    """Many rows without quotes, some with another text."""
    texts = (changed.get(i, f"passage {i} about rivers and hills") for i in range(ROWS))
    lines = "".join(f"{i}{delimiter}{text}\n" for i, text in enumerate(texts))
    return f"id{delimiter}text\n{lines}".encode()


def rejected(rows: list[Any]) -> list[int]:
    """The numbers of rejected rows, counted from 0."""
    return [number for number, row in enumerate(rows) if row == "!"]


@pytest.mark.parametrize("first", [10, ROWS // 2, ROWS - 20], ids=["head", "middle", "end"])
def test_rows_between_two_quotes_in_a_sample(tmp_path: Path, first: int) -> None:
    data = many({first: '"this begins', first + 5: 'and this ends"'})
    rows = rows_of(file_of(tmp_path / "a.csv", data), ("id", "text"))
    assert len(rows) == ROWS
    assert rows[first] == (str(first), '"this begins')


def test_rows_between_two_quotes_in_no_sample_are_a_rejected_row(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.csv", many({AT: '"this begins', AT + 5: 'and this ends"'}))
    found = [row for row in read_values(file, ["id", "text"]) if row.reason]
    assert [row.number for row in found] == [AT + 1]
    assert found[0].reason.startswith("a value in quotes holds rows; say --csv quote=none")
    said = read_as(tmp_path / "a.csv", csv="quote=none")
    assert len(rows_of(said, ("id",))) == ROWS
    taken = rows_of(read_as(tmp_path / "a.csv", csv='quote="'), ("id", "text"))
    assert len(taken) == ROWS - 5
    assert "and this ends" in taken[AT][1]


@pytest.mark.parametrize("text", ['"never ends', '"Hello" he said'])
def test_a_wrong_quote_in_no_sample_rejects_its_row_alone(tmp_path: Path, text: str) -> None:
    rows = rows_of(file_of(tmp_path / "a.csv", many({AT: text})), ("id", "text"))
    assert len(rows) == ROWS
    assert rejected(rows) == [AT]


def test_lines_between_two_quotes_of_one_column(tmp_path: Path) -> None:
    lines = [f"passage {i} about rivers and hills" for i in range(ROWS)]
    lines[AT] = f'"{lines[AT]}'
    lines[AT + 2] += '"'
    data = "\n".join(["text", *lines, ""]).encode()
    assert rejected(rows_of(file_of(tmp_path / "a.csv", data), ("text",))) == [AT]
    assert len(rows_of(file_of(tmp_path / "a.tsv", data), ("text",))) == ROWS
    lines[3] = '"two\nlines"'
    data = "\n".join(["text", *lines, ""]).encode()
    assert rejected(rows_of(file_of(tmp_path / "a.csv", data), ("text",))) == []


def test_a_late_quote_of_tsv_is_a_character(tmp_path: Path) -> None:
    data = many({AT: '"Hello" he said', AT + 9: '"open'}, "\t")
    rows = rows_of(file_of(tmp_path / "a.tsv", data), ("id", "text"))
    assert rejected(rows) == []
    assert rows[AT] == (str(AT), '"Hello" he said')


def test_samples_inside_of_long_values(tmp_path: Path) -> None:
    text = "\n".join(f"a line, with {'commas, ' * (i % 7)}in it" for i in range(20_000))
    data = f'id,text\n1,"{text}"\n2,"{text}"\n3,"a ""b"""\n'.encode()
    rows = rows_of(file_of(tmp_path / "a.csv", data), ("id", "text"))
    assert rows == [("1", text), ("2", text), ("3", 'a "b"')]


def test_a_dialect_in_words(tmp_path: Path) -> None:
    def title(data: bytes, name: str = "a.csv") -> str:
        file = file_of(tmp_path / name, data)
        return choose_reader(file).describe(file)

    assert title(b'id;text\n1;"a\nb"\n2;"c ""d"""\n') == '; " quoted, 1 value of several lines'
    assert title(b"id\ttext\n1\tone\n", "a.tsv") == "tab no quotes"
    assert title(b'# made\n\nid,text\n1,"a \\"b\\""\n') == (
        ', " quoted, \\ escapes, 2 lines above the header skipped'
    )
    assert title(b"text\none\n") == "one column no quotes"
    assert (
        title(many({3: '"a\nb"', 4: '"c\nd"'}))
        == ', " quoted, 2 values of several lines in samples'
    )


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        ("null=NA", [("1", ""), ("2", "n/a"), ("3", "\\N")]),
        ("null=n//a/\\N", [("1", "NA"), ("2", ""), ("3", "")]),
        ("null=NA,quote=none,escape=\\", [("1", ""), ("2", "n/a"), ("3", "")]),
    ],
)
def test_words_for_null(tmp_path: Path, spec: str, rows: list[tuple[str, str]]) -> None:
    file = file_of(tmp_path / "a.csv", b"id,text\n1,NA\n2,n/a\n3,\\N\n", csv=spec)
    assert rows_of(file, ("id", "text")) == rows


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("quote='", "quote=' is not allowed; say quote=none|\""),
        ("quotes=none", "did you mean quote?"),
        ("skip=-1", "skip=-1 is not allowed; say skip=N"),
        ("none", "'none' is not known; say key=value"),
        ("columns=id/id", "columns names a column twice"),
        ("columns=-/-", "names no column"),
        ("null=/NA", "null has an empty word"),
        ("skip=1,skip=2", "'skip' is given twice"),
    ],
)
def test_a_wrong_spec_is_one_line(spec: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        CsvSyntax.parse(spec)


def inside(words: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Words with slashes at most inside."""
    kept = words.filter(lambda word: word.strip("/") == word and word != "-")
    return st.lists(kept, unique=True).map(tuple)


@given(
    st.builds(
        CsvSyntax,
        st.none() | st.booleans(),
        st.none() | st.booleans(),
        inside(st.text("ab/-", min_size=1)),
        inside(st.text("NA/\\", min_size=1)),
        st.integers(0, 9),
    )
)
def test_a_spec_is_read_as_it_is_written(syntax: CsvSyntax) -> None:
    assert CsvSyntax.parse(str(syntax)) == syntax
