"""stub to be replaced at the merge."""


def bound(path: str, limit_bytes: int) -> int:
    """Bound."""
    del path, limit_bytes
    return 0
