"""The archive: days as Parquet files, before they are dropped."""
