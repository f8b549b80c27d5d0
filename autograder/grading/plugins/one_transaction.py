"""All or nothing, where nbgrader's own methods write: for as long as an assignment is registered."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from nbgrader.api import Gradebook
from sqlalchemy.orm import Session


@contextmanager
def one_transaction() -> Iterator[None]:
    """What is written to a gradebook that is opened in here is saved when it is closed, all or nothing: nbgrader's methods
    commit as they go along, a hundred times for one assignment."""
    session, book = cast(Any, Session), cast(Any, Gradebook)
    commit, leave = session.commit, book.__exit__

    def save(gradebook: Gradebook, kind: type[BaseException] | None, *what: Any) -> None:
        if kind is None:
            commit(gradebook.db())
        leave(gradebook, kind, *what)

    session.commit, book.__exit__ = session.flush, save
    try:
        yield
    finally:
        session.commit, book.__exit__ = commit, leave
