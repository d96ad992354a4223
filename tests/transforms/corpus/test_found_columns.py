"""Which column has the text and which one the ids, if no option names them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import write_bytes

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.collection_rows import list_files
from sentence_beam.transforms.corpus.found_columns import (
    FirstRows,
    FoundColumns,
    check_text,
    choose_columns,
    find_columns,
    find_id,
    find_in_values,
    find_other_id,
    find_text,
)
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.row_columns import read_first_values

# Headers of public data sets, as their cards and first rows show them: the column of text (?: the
# user is asked), that of ids (-: none, or the one that is proposed in brackets), and the columns.
# A column is a number (#), unless a kind of value follows its name: ~N words of N characters, or
# one of KINDS.
HEADERS = """
ag_news                  | text         | -      | text~236 label
ag_news.csv              | ?            | -      | Class_Index Title~43 Description~190
imdb                     | text         | -      | text~1300 label
imdb.csv                 | review       | -      | review~1300 sentiment:label
yelp_review_full         | text         | -      | label text~730
yelp_academic_review     | text         | (review_id) | review_id:hash user_id:hash business_id:hash stars useful funny cool text~560 date:date
amazon_polarity          | ?            | -      | label title~30 content~400
amazon_reviews_2018      | reviewText   | (reviewerID) | overall verified:flag reviewTime:date reviewerID:hash asin:hash reviewerName:name reviewText~400 summary~25 unixReviewTime
amazon_reviews_2023      | text         | (user_id) | rating title~25 text~200 asin:hash user_id:hash timestamp helpful_vote verified_purchase:flag
amazon_fine_foods        | Text         | (Id)   | Id ProductId:hash UserId:hash ProfileName:name HelpfulnessNumerator Score Time Summary~25 Text~430
sst2                     | sentence     | -      | idx sentence~55 label
rotten_tomatoes          | text         | -      | text~115 label
tweet_eval               | text         | -      | text~95 label
sentiment140             | text         | -      | target ids date:day flag:label user:label text~75
financial_phrasebank     | sentence     | -      | sentence~128 label
airline_tweets           | text         | (tweet_id) | tweet_id airline_sentiment:label negativereason~20 airline:label name:label text~105 tweet_created:date tweet_location~15
squad                    | ?            | id     | id:hash title~18 context~750 question~60
beir_corpus              | text         | _id    | _id:hash title~70 text~1200
beir_queries             | text         | _id    | _id:hash text~50
msmarco_v2               | passage      | (pid)  | pid:hash passage~330 docid:same
wikipedia                | text         | id     | id:number url:link title~20 text~2800
cc_news                  | text         | (url)  | title~60 text~2300 domain:label date:date description~160 url:link image_url:link
c4                       | text         | (url)  | text~2100 timestamp:date url:link
cnn_dailymail            | ?            | id     | article~3900 highlights~300 id:hash
xsum                     | document     | id     | document~2200 summary~125 id:number
multi_news               | document     | -      | document~9800 summary~1300
billsum                  | text         | -      | text~10000 summary~1200 title~120
arxiv_metadata           | ?            | id     | id:number submitter:name authors~80 comments~30 doi:link categories:label title~70 abstract~1000 update_date:date
cord19                   | ?            | (cord_uid) | cord_uid:hash sha:hash source_x:label title~95 doi:link pubmed_id abstract~1400 publish_time:date authors~150 journal~25 url:link
hacker_news_comments     | text         | id     | id by:label parent text~320 time type:label
reddit_comments          | body         | id     | id:hash author:label subreddit:label body~180 created_utc score
stackoverflow_posts      | ?            | (Id)   | Id CreationDate:date Score Body~900 Title~55 Tags:label
quora_pairs              | ?            | id     | id qid1 qid2 question1~60 question2~60 is_duplicate
jigsaw_toxic             | comment_text | id     | id:hash comment_text~390 toxic obscene threat
womens_clothing          | Review_Text  | (Clothing_ID) | Clothing_ID Age Title~19 Review_Text~300 Rating Division_Name:name Class_Name:label
airbnb_reviews           | comments     | id     | listing_id:same id date:day reviewer_id reviewer_name:label comments~250
hotel_reviews.csv        | Review       | -      | Review~700 Rating
mcdonalds_reviews        | review       | (reviewer_id) | reviewer_id store_name:label category~20 store_address~50 latitude rating_count review_time:ago review~125 rating:stars
sms_spam                 | sms          | -      | sms~80 label
fake_news.csv            | text         | id     | id title~72 author:name text~4500
isot_true.csv            | text         | -      | title~65 text~2400 subject:label date:longday
jeopardy                 | question     | -      | category~18 air_date:day question~95 value:money answer~12 round:label show_number:number
banking77                | text         | -      | text~60 label
go_emotions              | text         | id     | text~70 labels:list id:hash
dolly                    | ?            | -      | instruction~75 context~350 response~360 category:label
wmt_tsv                  | text         | -      | lang:label text~130
goodreads_reviews        | review_text  | -      | user_id:same book_id:same review_id:same rating review_text~750 date_added:longdate n_votes
steam_reviews            | review       | (review_id) | app_id:same app_name:name review_id language:label review~300 timestamp_created
trustpilot_export        | Content      | (Review_ID) | Review_ID:hash Stars Content~250 Country:label Consumer_name:name
zendesk_tickets          | description  | id     | id subject~40 description~500 status:label created_at:date
gmail_export             | Body         | -      | From:mail To:mail Subject~45 Date:rfcdate Body~1500
github_issues            | ?            | id     | id number title~60 body~900 user:label labels:list
shop_products            | description  | id     | id sku:hash name~40 price description~350 image:link
job_postings             | description  | (job_id) | job_id company_name:name description~3700 max_salary location~15 job_posting_url:link
chat_log                 | message      | -      | ts channel:label user:same message~80
"""
KINDS: dict[str, list[Any]] = {
    "#": [7, 8],
    "number": ["1201", "1202"],
    "same": ["x7f3", "x7f3"],
    "hash": ["7f31cf6a2dd94b01", "9e107d9d372bb682"],
    "label": ["positive", "negative"],
    "flag": [True, False],
    "name": ["Jane Doe", "J. van der Berg"],
    "mail": ["Jane Doe <jane@example.com>", "joe@example.com"],
    "link": ["https://example.com/articles/2024/05/a-title", "https://example.com/b"],
    "date": ["2024-05-01T10:20:30Z", "2024-05-02 11:00:00"],
    "day": ["2024-05-01", "2024-05-02"],
    "longday": ["December 31, 2017", "May 1, 2018"],
    "longdate": ["Wed Jul 31 16:18:00 -0700 2013", "Mon Jul 29 10:00:01 -0700 2013"],
    "rfcdate": ["Mon, 14 May 2001 16:39:00 -0700 (PDT)", "Tue, 15 May 2001 09:00:00 -0700 (PDT)"],
    "ago": ["3 months ago", "a year ago"],
    "stars": ["1 star", "4 stars"],
    "money": ["$200", "$1,000"],
    "list": [["a", "b"], []],
}
WORDS = "it was the best phone that my sister has had in many years and the battery lasts "


def sample(column: str) -> tuple[str, list[Any]]:
    """A column of a header, and two of its values."""
    if "~" in column:
        name, _, length = column.partition("~")
        text = WORDS * (1 + int(length) // len(WORDS))
        return name, [text[: int(length)], text[3 : int(length) + 3]]
    name, _, kind = column.partition(":")
    return name, KINDS[kind or "#"]


CASES = [[cell.strip() for cell in row.split("|")] for row in HEADERS.strip().splitlines()]


@pytest.mark.parametrize(
    ("text", "ids", "header"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_headers_as_people_have_them(text: str, ids: str, header: str) -> None:
    values = dict(map(sample, header.split()))
    samples = FirstRows(values, [frozenset(values)])
    found_id = find_id(samples)
    found = find_text(samples, found_id)
    assert (found or "?") == text
    other = find_other_id(samples, found) if found_id is None else None
    assert (found_id or (f"({other})" if other else "-")) == ids


def test_few_are_asked() -> None:
    assert len(CASES) >= 50
    assert 5 * [text for _, text, *_ in CASES].count("?") <= len(CASES)


def text_of(**values: list[Any]) -> str | None:
    return find_text(FirstRows(values, [frozenset(values)]))


LONG = ["a text of several words", "and another one of them"]


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        ("text", {"text": ["x"], "body": LONG}),
        ("remark", {"remark": LONG, "n": [1, 2]}),
        ("remark", {"remark": LONG, "code": ["17", "2024-01-02"], "on": ["true", "no"]}),
        (None, {"remark": ["x", "one two"]}),
        (None, {"remark": LONG, "note": LONG}),
        ("BODY", {"BODY": LONG, "kind": ["a", "b"]}),
        (None, {"title": ["a short title of it"], "note": LONG}),
        (None, {"comment": LONG, "link": ["https://example.com/a/long/path/to/a/page"]}),
        (None, {"body": LONG, "comment": ["one two three"]}),
        ("body", {"body": LONG, "meta.title": ["of one word"]}),
        ("data.body", {"data.body": LONG, "data.kind": ["a", "b"]}),
        ("review", {"review": ["这个电池可以用两天", "屏幕太暗了不好"], "kind": ["a", "b"]}),
        (None, {"sent": ["Mon Jan 01 10:00:00 UTC 2024", "Tue Jan 02 10:00:00 UTC 2024"]}),
        (None, {"body": [None, None], "n": [1, 2]}),
        ("body", {"body": [*LONG, None, "one"], "kind": ["a", "b", "c", "d"]}),
        (None, {}),
    ],
)
def test_the_text(expected: str | None, values: dict[str, list[Any]]) -> None:
    assert text_of(**values) == expected


def test_a_column_that_not_every_file_has_is_not_taken() -> None:
    values = {"body": LONG, "id": [1, 2]}
    samples = FirstRows(values, [frozenset(values), frozenset(["other"])])
    assert find_text(samples) is None
    assert find_id(samples) is None


@pytest.mark.parametrize(
    ("expected", "values", "nulls"),
    [
        ("id", {"id": [1, 2]}, ()),
        ("_id", {"_id": ["a", "b"]}, ()),
        ("ID", {"ID": ["a", "b"], "id": ["a", "a"]}, ()),
        (None, {"id": [1, 2], "_id": ["a", "b"]}, ()),
        (None, {"id": [1, None]}, ()),
        (None, {"id": [1, 2]}, ("id",)),
        (None, {"id": ["a", "a"]}, ()),
        (None, {"id": [1.0, 2.0]}, ()),
        (None, {"id": [True, False]}, ()),
        (None, {"Id": [1, 2]}, ()),
    ],
)
def test_the_id(expected: str | None, values: dict[str, list[Any]], nulls: tuple[str]) -> None:
    assert find_id(FirstRows(values, [frozenset(values)], frozenset(nulls))) == expected


# --- in files

ROWS = [
    {"_id": f"r{n}", "stars": n, "headline": "Good", "body": f"{WORDS}{n}; {LONG[0]}"}
    for n in range(40)
]
FRAME = pd.DataFrame(ROWS, index=[f"row {n}" for n in range(40)])
FOUND = FoundColumns("body", "_id", has_ids=True)


def files_of(path: Path, *others: Path) -> list[Any]:
    return list_files([str(one) for one in (path, *others)], "auto")


def as_csv(delimiter: str, encoding: str = "utf-8") -> bytes:
    return FRAME.to_csv(index=False, sep=delimiter).encode(encoding)


def test_formats(tmp_path: Path) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()
    write_bytes(tmp_path / "a.csv", as_csv(";"))
    write_bytes(tmp_path / "a.tsv.gz", as_csv("\t"))
    write_bytes(tmp_path / "latin1.csv", as_csv(",").replace(b"best", b"b\xe9st"))
    write_bytes(tmp_path / "a.jsonl", lines)
    write_bytes(tmp_path / "a.json", json.dumps(ROWS).encode())
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.reset_index(drop=True).to_feather(tmp_path / "a.arrow")
    for path in tmp_path.iterdir():
        assert find_columns(files_of(path), ids=True) == FOUND, path
    assert choose_columns(files_of(tmp_path / "a.csv"), None, None) == Columns("body", "_id")
    assert choose_columns(files_of(tmp_path / "a.csv"), "headline", "") == Columns("headline")


def test_nested_json(tmp_path: Path) -> None:
    rows = [{"id": n, "doc": {"title": "One", "body": LONG[0]}, "tags": ["a"]} for n in range(3)]
    path = write_bytes(tmp_path / "a.json", json.dumps({"version": 1, "rows": rows}).encode())
    with pytest.raises(OptionError, match="json_rows rows"):
        check_text(files_of(path), ())
    path = write_bytes(tmp_path / "b.json", json.dumps(rows).encode())
    assert find_columns(files_of(path), ids=True) == FoundColumns(
        None, "id", ("doc.body",), has_ids=True
    )


def test_nulls_after_the_first_rows_are_in_the_footer_of_parquet(tmp_path: Path) -> None:
    ids = [*map(str, range(3000)), None]
    table = pa.table({"id": ids, "doc_id": [*map(str, range(3001))], "body": LONG * 1500 + ["x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = find_columns(files_of(tmp_path / "a.parquet"), ids=True)
    assert found == FoundColumns("body", other_id="doc_id", has_ids=True)


def test_ids_that_begin_again_in_each_file_are_none(tmp_path: Path) -> None:
    paths = [write_bytes(tmp_path / f"{name}.csv", as_csv(",")) for name in "ab"]
    assert find_columns(files_of(*paths), ids=True) == FoundColumns("body", has_ids=True)


def test_plain_text_has_no_columns_and_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    text = write_bytes(tmp_path / "a.md", b"# Title\n")
    table = write_bytes(tmp_path / "a.csv", as_csv(","))
    damaged = write_bytes(tmp_path / "a.parquet", b"PAR1 cut off")
    assert find_columns(files_of(text, table)) == FoundColumns()
    assert find_columns(files_of(table, damaged), ids=True) == FOUND
    assert find_columns([]) == FoundColumns()


def test_the_line_has_the_columns_with_a_value_each_and_a_template(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.csv", b"n,title,body\n7,one two three,four five six seven\n")
    texts = find_columns(files_of(path)).texts
    with pytest.raises(OptionError) as error:
        check_text(files_of(path), texts)
    assert str(error.value) == (
        f"{path} has no column text (text_column); its columns, by its first row: n '7', title"
        " 'one two three', body 'four five six seven'; name the one with the text, or join"
        r" several, as in text_template '{title}\n\n{body}'"
    )


def test_rows_in_memory() -> None:
    by_column = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    for rows in (FRAME, pl.DataFrame(ROWS), pa.Table.from_pylist(ROWS), by_column, ROWS):
        assert find_in_values(read_first_values(rows, 20), ids=True) == FOUND, type(rows)
    assert find_in_values(read_first_values(["a text", "another"], 20)) == FoundColumns("text")
    assert read_first_values(pl.DataFrame(ROWS).lazy(), 20) == {}
