"""YAML that is readable and that kubectl parses as intended."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes scripts as blocks and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_AMBIGUOUS = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|[yYnN]")
"""Text that PyYAML leaves unquoted and kubectl's parser reads as a number or boolean: 1e3, 0o17, y."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(value: Any) -> str:
    """Return plain data as a YAML document, with keys in their own order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)
