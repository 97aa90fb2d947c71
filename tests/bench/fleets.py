"""Fleets of any size, made from the committed MI300 stack."""

from __future__ import annotations

import base64
import copy
import hashlib
import pathlib
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]


def host_key(number: int) -> str:
    """An Ed25519 public key in OpenSSH's form, another one for each number. Nobody has its private key."""
    kind, key = b"ssh-ed25519", hashlib.sha256(str(number).encode()).digest()
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, key))
    return f"{kind.decode()} {base64.b64encode(blob).decode()}"


def project(folder: pathlib.Path, *, runners: int, nodes: int = 3, maximum: int = 4) -> pathlib.Path:
    """A Pulumi project in the folder whose stack `mi300` has so many runners and nodes. Each label's runners ask for
    two GPUs, and it has at most `maximum` of them."""
    folder.mkdir(parents=True)
    for name in ("Pulumi.yaml", "components", "stacks"):
        (folder / name).symlink_to(ROOT / name)
    content = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())
    config: dict[str, Any] = content["config"]
    pool = config["gpu-runners:cluster"]["nodePools"]["mi300x"]
    first = next(iter(pool["nodes"].values()))
    pool["nodes"] = {
        f"mi300x-{n}": {
            **first,
            "address": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}",
            # Three members hold the control plane and etcd, whatever the size.
            "roles": first["roles"] if n < 3 else ["worker"],
            "hostKeys": [host_key(n)],
        }
        for n in range(nodes)
    }
    template = config["gpu-runners:runners"]["linux-mi300-gpu-2"] | {"min": 0, "max": maximum}
    config["gpu-runners:runners"] = {f"linux-mi300-gpu-2-{n}": copy.deepcopy(template) for n in range(runners)}
    (folder / "Pulumi.mi300.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder
