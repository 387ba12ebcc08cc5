"""What Spark says of a task that failed is pages long: what is raised is what the task raised."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException

from msgbroker.contract.errors import ArchiveDiffersError, JobFailedError, StoreUnavailableError
from spark_etl.archive.task_errors import task_errors

PAGES = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 4197, in main
    process()
ValueError: an earlier one, handled

During handling of the above exception, another exception occurred:

  File "parts.py", line 70, in write_part
{raised}

\tat org.apache.spark.scheduler.Task.run(Task.scala:141)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def raised_of(said: str) -> Exception:
    with pytest.raises(Exception) as raised, task_errors():  # noqa: PT011 - which one is what is asked
        raise PythonException(said)
    return raised.value


def test_one_of_our_errors_is_raised_as_it_was() -> None:
    told = "msgbroker.contract.machine_errors.ArchiveDiffersError: the archive differs: queue 7 from offset 3 on"

    error = raised_of(PAGES.format(raised=told))

    assert type(error) is ArchiveDiffersError
    assert str(error) == "the archive differs: queue 7 from offset 3 on"


def test_an_outage_may_be_tried_again() -> None:
    told = "msgbroker.contract.passing_errors.StoreUnavailableError: connection to server at x refused"

    error = raised_of(PAGES.format(raised=told))

    assert type(error) is StoreUnavailableError
    assert error.retryable


@pytest.mark.parametrize(
    "said, problem",
    [
        (PAGES.format(raised="OSError: [Errno 28] No space left on device"), "OSError: [Errno 28] No space left"),
        ("Job 0 cancelled because SparkContext was shut down\n\tat somewhere", "Job 0 cancelled because"),
        ("", "Spark does not say why"),
    ],
)
def test_anything_else_is_one_line(said: str, problem: str) -> None:
    error = raised_of(said)

    assert type(error) is JobFailedError
    assert problem in str(error)
    assert "\n" not in str(error)


def test_a_java_that_has_ended_is_a_job_that_failed() -> None:
    with pytest.raises(JobFailedError, match="Answer from Java side is empty"), task_errors():
        raise Py4JNetworkError("Answer from Java side is empty")


def test_what_spark_did_not_raise_goes_through() -> None:
    with pytest.raises(KeyError), task_errors():
        raise KeyError("x")
