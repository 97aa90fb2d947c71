"""YAML for people and for kubectl alike."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Scripts as blocks, nothing as an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_NO_TEXT_ELSEWHERE = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|[yYnN]")
"""Text that PyYAML would leave bare, and that kubectl's parser reads as a number or a truth value: 1e3, 0o17, y."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NO_TEXT_ELSEWHERE.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(value: Any) -> str:
    """Plain data as a YAML document, keys in their own order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)
