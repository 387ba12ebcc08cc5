"""How fast a day is archived, and what that costs others: `python -m tests.bench.archive`.

With and without what one would use instead (Spark's own JDBC and Parquet), in little memory, beside a broker at work,
and the open day while a broker publishes as fast as it can. All on this machine, in turns where it is a ratio.
"""
