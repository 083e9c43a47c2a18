from __future__ import annotations

import pytest

from orchestrator.model.masking import looks_secret, shown_value, without_credentials
from orchestrator.node.host_facts import ENV_SECRET


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("WANDB_API_KEY", "abc", "***"),
        ("hf_token", "abc", "***"),
        ("DB_PASS", "abc", "***"),
        ("MYSQL_PWD", "abc", "***"),
        ("SENTRY_DSN", "https://abc@o1.example.org/2", "***"),
        ("NCCL_DEBUG", "INFO", "INFO"),
        ("PWD", "/home/me", "/home/me"),
        ("DATABASE_URL", "postgres://me:abc@db:5432/x", "postgres://***@db:5432/x"),
        ("BROKER", "amqp://me:a/b@c d@host/", "amqp://***@c d@host/"),
        ("HTTPS_PROXY", "http://abc@proxy:3128", "http://***@proxy:3128"),
        ("HTTPS_PROXY", "http://proxy:3128", "http://proxy:3128"),
        ("DATA", "https://host/x?v=1&access_token=abc&z=2#f", "https://host/x?v=1&access_token=***&z=2#f"),
        ("STORE", "AccountName=n;AccountKey=a+b/c==;Suffix=s", "AccountName=n;AccountKey=***;Suffix=s"),
        ("SENDER", "me@example.org", "me@example.org"),
    ],
)
def test_what_is_shown_of_a_variable(name: str, value: str, shown: str) -> None:
    assert shown_value(name, value) == shown


def test_a_text_without_secrets_is_as_it_was() -> None:
    text = "--lr 0.1 --out /data/x=1 https://host/a/b?c=d"
    assert without_credentials(text) == text


def test_a_host_keeps_back_what_is_masked_here() -> None:
    words = ["TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "SESSION", "SIGNATURE",
             "WEBHOOK", "DSN", "_PWD"]  # fmt: skip
    assert ENV_SECRET.pattern == "|".join(words)
    assert all(looks_secret(f"x{word.lower()}x") for word in words)
