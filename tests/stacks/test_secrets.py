"""What looks like a secret: by value, by name, and what only sounds like one."""

from __future__ import annotations

import pytest

from gpufleet_stacks.settings.secrets import holds_secret, is_secret, names_secret, redacted, secret_keys

VALUES = {
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_" + "a1B2" * 9,
    "GitLab": "glpat-" + "a1B2" * 5,
    "Slack": "xoxb-123456789012-abcdef",
    "Slack, of a user": "xoxp-123456789012-abcdef",
    "PyPI": "pypi-AgEIcHlwaS5vcmcCJD" + "a1B2" * 9,
    "npm": "npm_" + "a1B2" * 9,
    "Hugging Face": "hf_" + "aBcD" * 8,
    "an AWS access key": "AKIA" + "A2B3" * 4,
    "a temporary AWS access key": "ASIA" + "A2B3" * 4,
    "a service account": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----",
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_secret_is_known_by_its_look(value: str) -> None:
    assert holds_secret(value)
    assert redacted(value) == "<secret>"
    assert redacted(f"use '{value}") == "use '<secret>"


def test_a_password_in_a_url_is_hidden() -> None:
    assert redacted("https://me:horse@example.com/x") == "https://<secret>@example.com/x"


@pytest.mark.parametrize(
    "text",
    [
        "pypi-mirror.example.com",
        "hf_hub_download",
        "npm_config_registry",
        "xoxb",
        "AKIA",
        "oci://ghcr.io/actions/chart",
        "https://example.com:8443/@scope",
        "sk-learn-contrib-project-name",
        "task-proj-a",
        "sha256:" + "0" * 64,
    ],
)
def test_other_text_holds_no_secret(text: str) -> None:
    assert not holds_secret(text)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "DB_PASSWORD",
        "WANDB_API_KEY",
        "OPENAI_API_KEY",
        "CLIENT_SECRET",
        "MYSQL_PWD",
        "SMTP_PASS",
        "GITHUB_PAT",
        "TOKEN",
        "password",
        "adminPassword",
        "github-token",
        "DJANGO_SECRET_KEY",
        "APIKEY",
        "PGPASSWORD",
    ],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert names_secret(name)
    assert is_secret(name, "correct-horse")


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "MAX_NEW_TOKENS",
        "SECRET_NAME",
        "PASSWORD_FILE",
        "TOKEN_PATH",
        "AWS_ACCESS_KEY_ID",
        "PWD",
        "OLDPWD",
        "PAD_TOKEN",
        "EOS_TOKEN",
        "PUBLIC_KEY",
        "CACHE_KEY",
        "SORT_KEY",
        "KEY",
        "BYPASS",
        "COMPASS",
        "PATH",
        "HF_HOME",
        "SSH_AUTH_SOCK",
        "httpTokens",
        "encryptionConfigKeyArn",
        "topologyKey",
        "OMP_NUM_THREADS",
        "_",
    ],
)
def test_other_names_are_of_no_secret(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.parametrize("value", ["", "1", "false", "$(HF_TOKEN)", "${TOKEN}", "/run/secrets/token"])
def test_a_switch_a_reference_and_a_path_are_no_secret(value: str) -> None:
    assert not is_secret("HF_HUB_DISABLE_IMPLICIT_TOKEN", value)


def test_a_key_of_aws_that_begins_like_a_path_is_a_secret() -> None:
    assert is_secret("AWS_SECRET_ACCESS_KEY", "/abcdefghi/ABCDEFGHIJabcdefghij012345678")


def test_keys_of_charts_name_secrets_or_hold_them() -> None:
    assert secret_keys({"name": "HF_TOKEN", "value": "horse"}) == {"value"}
    assert secret_keys({"adminPassword": "horse", "CLIENT_SECRET": "horse"}) == {"adminPassword", "CLIENT_SECRET"}
    assert (
        secret_keys({"githubConfigSecret": "pre-defined", "secretKey": "tls.key", "name": "hf", "key": "token"})
        == set()
    )
