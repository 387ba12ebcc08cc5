"""A mapping that shares what is the same is, to whoever looks, an ordinary one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from confdb.shared_mapping import SharedMapping

NAMES = st.sampled_from([*range(200), "a", "b"])


@given(things=st.dictionaries(NAMES, st.integers()), changes=st.lists(st.tuples(NAMES, st.none() | st.integers())))
def test_it_is_what_was_put_into_it_whatever_is_made_of_it(
    things: dict[object, int], changes: list[tuple[object, int | None]]
) -> None:
    plain, shared = dict(things), SharedMapping(things)
    history = [(dict(plain), shared)]
    for name, thing in changes:
        plain.pop(name, None)
        if thing is not None:
            plain[name] = thing
        shared = shared.changed(name, thing)
        history.append((dict(plain), shared))

    assert all(was == told and len(was) == len(told) for was, told in history)
    assert all(shared.get(name) == plain.get(name) for name in range(200))
