"""Where an error is defined: in the contract, in the file of its family, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from msgbroker.contract import (
    errors,
    invalid_errors,
    machine_errors,
    passing_errors,
    registry_errors,
    state_errors,
)
from msgbroker.contract.error_families import (
    FAMILIES,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidRequestError,
    MessageCenterError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.support.error_kinds import kinds_of, leaves_of

ROOT = Path(__file__).parents[3]
HOMES: dict[type[MessageCenterError], str] = {
    InvalidRequestError: invalid_errors.__name__,
    NotFoundError: registry_errors.__name__,
    AlreadyExistsError: registry_errors.__name__,
    FailedPreconditionError: state_errors.__name__,
    PermissionDeniedError: state_errors.__name__,
    UnauthenticatedError: state_errors.__name__,
    ResourceExhaustedError: passing_errors.__name__,
    UnavailableError: passing_errors.__name__,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_leaf_is_in_the_file_of_its_family_or_in_that_of_the_machine(family: type[MessageCenterError]) -> None:
    strangers = {leaf.__name__: leaf.__module__ for leaf in leaves_of(family)}

    assert set(strangers.values()) <= {HOMES[family], machine_errors.__name__}, strangers


def test_errors_of_the_machine_are_never_retryable() -> None:
    of_machine = [
        leaf for family in FAMILIES for leaf in leaves_of(family) if leaf.__module__.endswith("machine_errors")
    ]

    assert of_machine
    assert [leaf.__name__ for leaf in of_machine if leaf.retryable] == []


def test_every_error_is_imported_from_one_place() -> None:
    assert [kind for kind in kinds_of(MessageCenterError) if getattr(errors, kind.__name__, None) is not kind] == []


@pytest.mark.parametrize("package", ["confdb", "msgdb", "msgconsole"])
def test_no_error_with_a_reason_of_its_own_is_defined_outside_of_the_contract(package: str) -> None:
    strangers = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and any(map(_is_reason, node.body))
    ]

    assert strangers == []


def _is_reason(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name("reason")]) | ast.AnnAssign(target=ast.Name("reason")):
            return True
    return False
