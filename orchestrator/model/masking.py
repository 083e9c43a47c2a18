"""What may be shown and written down of variables that may hold secrets."""

from __future__ import annotations

import re

MASK = "***"
# As in node/host_facts.py, which lets none of these out of a host.
_WORDS = "TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|SESSION|SIGNATURE|WEBHOOK|DSN|_PWD"
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
# `scheme://user:password@host`, up to the last @: passwords hold anything.
_USER_IN_URL = re.compile(r"://\S*@")
# `?access_token=...`, `AccountKey=...;`: a value with names of its own.
_SECRET_INSIDE = re.compile(rf"([\w.-]*(?:{_WORDS})[\w.-]*=)[^&;\s#]+", re.IGNORECASE)


def looks_secret(name: str) -> bool:
    """Tell whether a variable's name says that its value is nobody else's business."""
    return _SECRET_NAME.search(name) is not None


def without_credentials(text: str) -> str:
    """Return a text with the credentials masked that a URL or a connection string in it holds."""
    return _SECRET_INSIDE.sub(rf"\1{MASK}", _USER_IN_URL.sub(f"://{MASK}@", text))


def shown_value(name: str, value: str) -> str:
    """Return what may be shown of a variable that somebody else than ddp-orch has set."""
    return MASK if looks_secret(name) else without_credentials(value)
