"""Questions about the shards of a corpus, answered by DuckDB, which reads them in a stream. Only this file imports it.

A word counts once per text, with the mean of its scores there, so that intervals are over independent texts. They are
as wide as if one more text showed no effect of the word: a few texts that happen to agree prove little.
"""

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.errors import UsageError
from whichtoken.jobs.shards import COLUMNS, SHARDS

Z = 1.96  # of a 95 % interval
# Few texts have wider intervals: Student's quantile, divided by Z, as a series in 1 / (n - 1).
STUDENT = "(1 + 1.21 / (count(*) - 1) + 1.44 / (count(*) - 1) ^ 2)"

# Shares are relative to the strongest word of the text; a text whose scores are all 0 has none. Folders may have names
# such as "label=good", which DuckDB would read as a column, and kept columns any name, so only our own are selected.
RESULTS = """
CREATE OR REPLACE TEMP VIEW {name}_results AS
SELECT {columns}, greatest(list_max(scores), -list_min(scores)) AS strongest
FROM read_parquet('{shards}', hive_partitioning = false) WHERE method = '{method}'
"""
PER_TEXT = """
CREATE OR REPLACE TEMP VIEW {name}_per_text AS
WITH occurrences AS (
  SELECT row, result, label, strongest, len(words) AS n,
         unnest(words) AS written, unnest(scores) AS score, unnest(range(1, len(words) + 1)) AS place
  FROM {name}_results WHERE strongest > 0)
SELECT row, result, label, lower(written) AS word, avg(score) AS score, avg(score / strongest) AS share,
       max(place = 1) AS starts, max(place = n) AS ends,
       max(place > 1 AND regexp_matches(written, '^\\p{{Lu}}\\p{{Ll}}')) AS capitalised
FROM occurrences GROUP BY ALL
"""
WORDS = """
CREATE OR REPLACE TEMP TABLE {name}_words AS
SELECT label, word, count(*) AS n_texts, avg(score) AS score, avg(share) AS share,
       sqrt(greatest(sum(share ^ 2) - sum(share) ^ 2 / (count(*) + 1), 0)) / count(*) * {student} AS error,
       avg(starts::INT) AS at_start, avg(ends::INT) AS at_end, avg(capitalised::INT) AS capitalised,
       (sum(count(*)) OVER (PARTITION BY word) - count(*))::BIGINT AS n_other
FROM {name}_per_text GROUP BY label, word QUALIFY n_texts >= {least}
"""
EFFECTS = """
SELECT label, word, n_texts, score, share,
       greatest(share - {z} * error, -1) AS low, least(share + {z} * error, 1) AS high,
       n_other, at_start, at_end, capitalised
FROM {name}_words WHERE {condition} ORDER BY {order}, word LIMIT {limit}
"""
LABELS = """
SELECT label, count(*), CASE WHEN bool_or(correct IS NOT NULL) THEN count(*) FILTER (correct) END, avg(probability)
FROM {name}_results GROUP BY label ORDER BY count(*) DESC, label
"""
# The strongest support of each prediction, and how often the prediction is wrong.
DECIDING = """
WITH decided AS (
  SELECT predicted, correct, lower(words[list_position(scores, list_max(scores))]) AS word
  FROM {name}_results WHERE correct IS NOT NULL AND label = predicted AND list_max(scores) > 0),
rate AS (SELECT avg((NOT correct)::INT) AS wrong FROM decided)
SELECT predicted, word, count(*) FILTER (NOT correct) AS n_wrong, count(*) AS n_texts
FROM decided, rate GROUP BY predicted, word, rate.wrong
HAVING n_wrong >= 2 AND n_texts >= {least} AND n_wrong > n_texts * rate.wrong
ORDER BY n_wrong - n_texts * rate.wrong DESC, word LIMIT {limit}
"""
ERROR_RATE = "SELECT avg((NOT correct)::INT) FROM {name}_results WHERE correct IS NOT NULL"
EXAMPLES = """
SELECT label, word, max_by(row, share * {sign}, {count}) FROM {name}_per_text
WHERE (label, word) IN (SELECT label, word FROM wanted) GROUP BY label, word
"""
WRONG_EXAMPLES = """
SELECT predicted, word, min(row, {count}) FROM (
  SELECT row, predicted, lower(words[list_position(scores, list_max(scores))]) AS word
  FROM {name}_results WHERE NOT correct AND label = predicted AND list_max(scores) > 0)
WHERE (predicted, word) IN (SELECT label, word FROM wanted) GROUP BY predicted, word
"""
CHANGED_EFFECTS = """
SELECT b.label, b.word, a.share, b.share, b.share - a.share - {z} * sqrt(a.error ^ 2 + b.error ^ 2) AS low,
       b.share - a.share + {z} * sqrt(a.error ^ 2 + b.error ^ 2) AS high, a.n_texts, b.n_texts
FROM before_words a JOIN now_words b USING (label, word)
WHERE low > 0 OR high < 0 ORDER BY greatest(low, -high) DESC, b.word LIMIT {limit}
"""
# Frequencies, with the interval of the logarithm of their ratio; half a text is added, for words that are new or gone.
# The texts are counted again, because the tables have no words that are rare in one corpus and frequent in the other.
CHANGED_FREQUENCIES = """
WITH either AS (SELECT label, word FROM before_words UNION SELECT label, word FROM now_words),
counts AS (
  SELECT label, word, count(*) FILTER (corpus = 'a') AS n_a, count(*) FILTER (corpus = 'b') AS n_b
  FROM (SELECT 'a' AS corpus, label, word FROM before_per_text
        UNION ALL SELECT 'b' AS corpus, label, word FROM now_per_text)
  SEMI JOIN either USING (label, word) GROUP BY label, word),
totals AS (
  SELECT label, (SELECT count(*) FROM before_results r WHERE r.label = l.label) AS all_a, count(*) AS all_b
  FROM now_results l GROUP BY label),
ratios AS (
  SELECT label, word, n_a, n_b, all_a, all_b,
         ln((n_b + 0.5) / (all_b + 1)) - ln((n_a + 0.5) / (all_a + 1)) AS ratio,
         sqrt(1 / (n_a + 0.5) + 1 / (n_b + 0.5)) AS error
  FROM counts JOIN totals USING (label) WHERE all_a > 0)
SELECT label, word, n_a / all_a, n_b / all_b, exp(ratio - {z} * error) AS low, exp(ratio + {z} * error) AS high,
       n_a, n_b
FROM ratios WHERE low > 1 OR high < 1 ORDER BY abs(ratio) - {z} * error DESC, word LIMIT {limit}
"""


@dataclass(frozen=True)
class ShardQueries:
    """A connection with the shards of one or two corpora; `name` is "now", or "before" for the earlier one."""

    connection: Any
    least: int  # texts that a word must occur in

    def open(self, name: str, folder: Path, method: str) -> None:
        """Read the words of a corpus into a table of one row per label and word."""
        pattern = str(Path(glob.escape(str(folder))) / SHARDS / "*.parquet").replace("'", "''")
        quoted = method.replace("'", "''")
        with while_reading(folder / SHARDS):
            for query in (RESULTS, PER_TEXT, WORDS):
                self.connection.execute(
                    query.format(
                        name=name,
                        columns=", ".join(COLUMNS),
                        shards=pattern,
                        method=quoted,
                        least=self.least,
                        student=STUDENT,
                    )
                )

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(
            query.format(**{"name": "now", "z": Z, "least": self.least, **values})
        ).fetchall()
        return found

    def effects(self, condition: str, order: str, limit: int, label: str | None = None) -> list[tuple[Any, ...]]:
        """Return words by a condition on low and high, in an order."""
        chosen = f"({condition})" + ("" if label is None else " AND label = '{}'".format(label.replace("'", "''")))
        return self.rows(EFFECTS, condition=chosen, order=order, limit=limit)

    def examples(self, query: str, words: Sequence[tuple[str, str]], **values: object) -> dict[Any, tuple[int, ...]]:
        """Return rows that show each word, by label and word."""
        self.connection.execute("CREATE OR REPLACE TEMP TABLE wanted (label VARCHAR, word VARCHAR)")
        if not words:
            return {}
        self.connection.executemany("INSERT INTO wanted VALUES (?, ?)", [list(pair) for pair in words])
        return {(label, word): tuple(rows) for label, word, rows in self.rows(query, **values)}

    def results(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return the whole results of some rows."""
        if not rows:
            return []
        listed = ", ".join(str(int(row)) for row in rows)
        found = self.connection.execute(f"SELECT * FROM now_results WHERE row IN ({listed}) ORDER BY row, result")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@contextmanager
def open_queries(least: int) -> Iterator[ShardQueries]:
    """Yield a connection that keeps what does not fit in memory in a temporary folder."""
    if find_spec("duckdb") is None:
        raise UsageError("a summary of a corpus needs DuckDB: pip install 'whichtoken[corpus]'")
    import duckdb

    with TemporaryDirectory(prefix="whichtoken-") as folder, duckdb.connect(":memory:") as connection:
        quoted = folder.replace("'", "''")
        connection.execute(f"SET temp_directory = '{quoted}'")
        connection.execute("SET preserve_insertion_order = false")
        yield ShardQueries(connection, least)
