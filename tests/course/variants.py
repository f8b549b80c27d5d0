"""How the files beside this one collect their wrong answers."""

from collections.abc import Callable
from typing import Any

Variant = tuple[str, str, Any]  # grade_id, pattern, subject


def registry() -> tuple[list[Variant], Callable[[str, str], Callable[[Any], Any]]]:
    """An empty list, and a decorator that adds to it: ``@variant(grade_id, pattern)``."""
    variants: list[Variant] = []

    def variant(grade_id: str, pattern: str) -> Callable[[Any], Any]:
        def register(subject: Any) -> Any:
            variants.append((grade_id, pattern, subject))
            return subject

        return register

    return variants, variant
