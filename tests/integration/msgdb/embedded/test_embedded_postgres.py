"""The embedded PostgreSQL really starts, stops, recovers, and says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from msgdb.embedded import EmbeddedPostgres, EmbeddedPostgresError
from msgdb.embedded.account import choose_account
from msgdb.embedded.binaries import get_binaries
from tests.support.processes import left_running

FAST = {"fsync": "off"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory below one that only its owner may enter."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home / ".msgcenter" / "postgres"


@pytest.fixture
def postgres(directory: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(directory, settings=FAST) as server:
        yield server


def scalar(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def make_table(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")


def test_it_starts_below_a_private_home_without_touching_its_permissions(
    postgres: EmbeddedPostgres, directory: Path
) -> None:
    home = directory.parent.parent
    assert scalar(postgres.url("postgres"), "SELECT 1") == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert home.stat().st_uid == os.geteuid()


def test_its_databases_are_utf8_and_compare_by_code_point(postgres: EmbeddedPostgres) -> None:
    url = postgres.create_database("msgcenter")
    statement = "SELECT pg_encoding_to_char(encoding) || ' ' || datlocale FROM pg_database WHERE datname = 'msgcenter'"
    assert scalar(url, statement) == "UTF8 C.UTF-8"


def test_making_a_database_twice_keeps_it(postgres: EmbeddedPostgres) -> None:
    make_table(postgres.create_database("msgcenter"))
    assert scalar(postgres.create_database("msgcenter"), "SELECT number FROM kept") == 7


def test_what_is_committed_survives_a_power_cut(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        make_table(server.url("postgres"))
        server.kill()
        url = server.start()
        assert scalar(url, "SELECT number FROM kept") == 7
        assert scalar(url, "SHOW fsync") == "on"
        assert scalar(url, "SHOW synchronous_commit") == "on"


def test_a_server_left_by_a_killed_process_is_taken_over(directory: Path) -> None:
    program = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from msgdb.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1]), settings={'fsync': 'off'})\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, check=False)
    left = psutil.Process(int(done.stdout))
    assert left.is_running()
    with EmbeddedPostgres(directory, settings=FAST) as server:
        assert not left_running([left])
        assert scalar(server.url("postgres"), "SELECT 1") == 1


def test_a_stale_pid_file_that_names_a_stranger_does_not_hinder_a_start(directory: Path) -> None:
    with EmbeddedPostgres(directory, settings=FAST):
        pass
    (directory / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{directory / 'data'}\n1\n5432\n\n\n")
    with EmbeddedPostgres(directory, settings=FAST) as server:
        assert scalar(server.url("postgres"), "SELECT 1") == 1


def test_a_second_server_in_the_directory_is_refused_by_name(postgres: EmbeddedPostgres, directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=f"in use by process {os.getpid()}"):
        EmbeddedPostgres(directory).start()
    assert scalar(postgres.url("postgres"), "SELECT 1") == 1


def test_it_runs_in_a_session_of_its_own(postgres: EmbeddedPostgres) -> None:
    assert os.getsid(postgres.pid) == postgres.pid != os.getsid(0)


def test_a_path_too_long_for_a_socket_gets_a_short_one_that_goes_with_the_server(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 25) / "postgres"
    with EmbeddedPostgres(deep, settings=FAST) as server:
        url = server.url("postgres")
        assert str(deep) not in url
        assert scalar(url, "SELECT 1") == 1
        sockets = Path(url.partition("host=")[2].partition("&")[0])
    assert not sockets.exists()


def test_by_tcp_it_asks_for_a_password(directory: Path, free_port: int) -> None:
    with EmbeddedPostgres(directory, tcp_port=free_port, settings=FAST) as server:
        assert scalar(server.tcp_url("postgres"), "SELECT 1") == 1
        with pytest.raises(psycopg.OperationalError, match=r"no password supplied|authentication failed"):
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{free_port}/postgres")


def test_data_of_another_major_version_is_refused_in_a_sentence(directory: Path) -> None:
    with EmbeddedPostgres(directory, settings=FAST):
        pass
    (directory / "data" / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedPostgresError, match="holds data of PostgreSQL 16; this is PostgreSQL 18"):
        EmbeddedPostgres(directory).start()


def test_a_server_that_does_not_start_shows_the_end_of_its_log(directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"did not start\n(.|\n)*no_such_setting"):
        EmbeddedPostgres(directory, settings={**FAST, "no_such_setting": "1"}).start()
    with EmbeddedPostgres(directory, settings=FAST) as server:
        assert server.is_alive


def test_an_initdb_that_was_killed_halfway_does_not_hinder_the_next_start(directory: Path) -> None:
    half_made = directory / "data.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(directory, settings=FAST) as server:
        assert scalar(server.url("postgres"), "SELECT 1") == 1


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match="cannot be made: Not a directory"):
        EmbeddedPostgres(tmp_path / "file" / "postgres").start()


def test_an_ordinary_user_can_run_it(tmp_path: Path) -> None:
    account = choose_account(tmp_path / "none", get_binaries() / "postgres")
    home = tmp_path / "ordinary"
    home.mkdir(mode=0o700)
    account.own(home)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from msgdb.embedded import EmbeddedPostgres\n"
        "assert os.geteuid() != 0\n"
        "with EmbeddedPostgres(Path(sys.argv[1]), settings={'fsync': 'off'}) as server:\n"
        "    print(server.create_database('msgcenter'))\n"
    )
    done = subprocess.run(
        [*account.prefix, sys.executable, "-c", program, str(home / "postgres")],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("postgresql://postgres@/msgcenter?host=")
