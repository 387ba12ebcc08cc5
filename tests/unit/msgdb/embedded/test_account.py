"""As whom the embedded PostgreSQL runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msgdb.embedded import EmbeddedPostgresError, account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root switches to another user")


def make_program(directory: Path, mode: int) -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / "postgres"
    program.touch()
    program.chmod(mode)
    return program


@as_root
def test_a_capability_is_given_only_where_a_directory_is_closed(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = make_program(closed, 0o755)
    assert "--ambient-caps=-all,+dac_read_search" in account.choose_account(Path("/data"), program).prefix
    assert "--inh-caps=-all" in account.choose_account(Path("/data"), Path("/bin/true")).prefix


@as_root
def test_a_program_installed_under_a_strict_umask_can_still_be_run(tmp_path: Path) -> None:
    program = make_program(tmp_path / "strict", 0o700)
    assert "--ambient-caps=-all,+dac_override" in account.choose_account(Path("/data"), program).prefix


@as_root
def test_without_any_capability_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_program(tmp_path / "strict", 0o700)
    monkeypatch.setattr(account, "_permitted_capabilities", lambda: 0)
    with pytest.raises(EmbeddedPostgresError, match="run as an ordinary user"):
        account.choose_account(Path("/data"), program)


@as_root
def test_without_setpriv_it_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedPostgresError, match="install the package util-linux"):
        account.choose_account(Path("/data"), Path("/bin/true"))


def test_an_ordinary_user_is_told_whose_the_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(EmbeddedPostgresError, match="belongs to user id"):
        account.choose_account(tmp_path, Path("/bin/true"))
