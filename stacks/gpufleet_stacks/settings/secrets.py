"""Recognition of secrets by name and by value, used by settings, policy, import and every output.

Standard library only, because the policy pack imports this module in its own environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET = "<secret>"
"""Shown in place of a secret."""

_VALUE = re.compile(
    r"(gh[opusr]_|github_pat_)[A-Za-z0-9_]{8,}"
    r"|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[0-9]-[A-Za-z0-9-]{8,}|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{8,}"
    r"|pypi-(AgE[A-Za-z0-9_-]{8,}|[A-Za-z0-9_]{20,})"
    r"|(npm|hf|api_org)_[A-Za-z0-9]{16,}"
    r"|dckr_(pat|oat)_[A-Za-z0-9_-]{16,}"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{35}"
    r"|\bsk-(ant|proj|svcacct)-[A-Za-z0-9_-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----.*"
    r"|(?<=://)[^/\s@]*:[^/\s@]*(?=@)",
    re.DOTALL,
)
"""Tokens of GitHub, GitLab, Slack, PyPI, npm, Hugging Face, Docker Hub, Google, OpenAI and Anthropic; AWS access key
IDs; JSON web tokens, as service accounts have them; private keys; and passwords in URLs."""

_LAST_WORDS = frozenset(["password", "passwd", "passphrase", "token", "secret", "credential", "credentials", "apikey"])
"""Last words of names of secrets. Plurals are excluded: `MAX_TOKENS` is a number."""

_LAST_WORDS_OF_SEVERAL = frozenset(["pass", "pwd", "pat"])
"""Last words of names of secrets with at least two words: `DB_PWD` is a password, but `PWD` is a folder."""

_KINDS_OF_KEY = frozenset(
    {
        *("access", "account", "api", "auth", "deploy", "encryption"),
        *("license", "master", "private", "secret", "shared", "signing"),
    }
)
"""Words before `KEY` in names of secrets: `PUBLIC_KEY` and `CACHE_KEY` are not secrets."""

_MODEL_TOKENS = frozenset(["bos", "cls", "eos", "image", "mask", "pad", "sep", "special", "stop", "unk"])
"""Words before `TOKEN` in names of a language model's tokens, which are not secrets."""

_NAMES_AN_OBJECT = re.compile(r"(?![A-Z0-9_]+$).*(?i:secret|credentials?|secret[_-]?key)")
"""Keys in charts and manifests whose value is the name of a Kubernetes Secret or of a key in it: `githubConfigSecret`.
Names in upper case are variables with the secret itself: `CLIENT_SECRET`."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NO_SECRET = re.compile(r"|0|1|true|false|yes|no|on|off|<secret>|\$\{[^}]*\}|\$\([^)]*\)", re.IGNORECASE)
"""Values that are never secrets: empty text, switches, and references to other variables."""

_PATH = re.compile(r"(?!.{40}$)(/[A-Za-z0-9._-]+){2,}")
"""Absolute paths, which are not secrets. AWS secret access keys have 40 characters, and some begin with a slash."""


def redacted(text: str) -> str:
    """Return the text with `<secret>` in place of everything that looks like a secret."""
    return _VALUE.sub(SECRET, text)


def holds_secret(text: str) -> bool:
    """Return whether the text contains anything that looks like a secret."""
    return _VALUE.search(text) is not None


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable or setting with this name and value is a secret."""
    return holds_secret(value) or (
        names_secret(name) and not _NO_SECRET.fullmatch(value) and not _PATH.fullmatch(value)
    )


def names_secret(name: str) -> bool:
    """Return whether a name in snake case, kebab case or camel case is the name of a secret.

    The last word decides: `HF_TOKEN`, `adminPassword` and `WANDB_API_KEY` are names of secrets; `SECRET_NAME`,
    `PASSWORD_FILE` and `TOKENIZERS_PARALLELISM` are not.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return before not in _MODEL_TOKENS
    if last == "key":
        return before in _KINDS_OF_KEY
    # PostgreSQL's own variable is PGPASSWORD.
    return last in _LAST_WORDS or last.endswith("password") or (bool(before) and last in _LAST_WORDS_OF_SEVERAL)


def secret_keys(mapping: Mapping[Any, Any]) -> set[Any]:
    """Return the keys of a mapping from a chart or a manifest whose values are secrets: by name, by value, or as
    `value` with a `name` beside it, as in a container's environment."""
    found = {
        key
        for key, value in mapping.items()
        if isinstance(value, str) and is_secret("" if _NAMES_AN_OBJECT.fullmatch(str(key)) else str(key), value)
    }
    name, value = mapping.get("name"), mapping.get("value")
    if isinstance(name, str) and isinstance(value, str) and is_secret(name, value):
        found.add("value")
    return found
