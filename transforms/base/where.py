"""Filters of rows, such as `lang = 'en' AND year >= 2020`: check them and evaluate them.

As in SQL, a comparison with null is neither true nor false, and a row matches only if the whole
filter is true. `where_parser.py` reads the text, `where_columns.py` fits values to columns.
"""

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.base.where_columns import FilterSchema, NumbersIn, Words, no_numbers
from sentence_beam.transforms.base.where_parser import EXAMPLE, FilterParser

WHERE = Words(cite("where"), "column", "the store keeps")

__all__ = ["WHERE", "Words", "evaluate_filter", "list_named_columns", "parse_filter"]


def parse_filter(
    where: str | pc.Expression,
    schema: pa.Schema,
    words: Words = WHERE,
    numbers_in: NumbersIn = no_numbers,
) -> pc.Expression:
    """Return a filter as an expression over the columns of `schema`; it may name no others.

    Raises OptionError, naming the columns, if the filter cannot be read, names another column,
    compares a column with a value of another type, or orders texts that are numbers.
    """
    expression = where
    if isinstance(where, str):
        expression = FilterParser(where, FilterSchema(schema, words, numbers_in)).parse()
    try:
        kind = evaluate_filter(expression, schema.empty_table()).type
    except (pa.ArrowException, TypeError) as error:
        columns = FilterSchema(schema, words)
        raise OptionError(f"{words.option}: {first_line(error)}; {columns}") from error
    if not pa.types.is_boolean(kind):
        raise OptionError(f"{words.option}: it gives {kind} and not true or false; {EXAMPLE}")
    return expression


def list_named_columns(where: str, schema: pa.Schema) -> list[str]:
    """Return the columns that a filter names, each once; refuse what `parse_filter` refuses."""
    parser = FilterParser(where, FilterSchema(schema, WHERE))
    parser.parse()
    return list(dict.fromkeys(parser.columns))


def evaluate_filter(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """Return the value of an expression for each row of a table."""
    import pyarrow.dataset as ds  # imports pandas if it is installed

    return ds.dataset(table).to_table(columns={"wanted": expression}).column(0)
