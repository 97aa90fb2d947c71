"""The project of a scale set as an entry of a stack file: GitHub, credentials, proxies and certificate authority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet_tools.imports.arc_values import GithubSecret
from gpufleet_tools.imports.pods import Entry, mapping


def project_of(
    values: Mapping[str, Any], namespace: str, label: str, secret: GithubSecret | None
) -> tuple[Entry, str | None]:
    """Return the project of a scale set, and the secret that its credentials require: `token` or `privateKey`.
    `secret` is the given manifest of the Secret that the values refer to."""
    project: Entry = {"configUrl": values.get("githubConfigUrl"), "namespace": namespace}
    further = {
        "runnerGroup": values.get("runnerGroup"),
        "proxy": _proxy(mapping(values.get("proxy"))),
        "serverCertificate": _certificate(mapping(values.get("githubServerTLS"))),
    }
    project |= {key: value for key, value in further.items() if value}
    given = values.get("githubConfigSecret")
    made = f"{label}-gha-rs-github-secret"
    if isinstance(given, str) and secret is None:
        return project | {"credentials": {"kind": "existingSecret", "secretName": given}}, None
    name, keys = (given, _ids(secret)) if isinstance(given, str) and secret else (made, mapping(given))
    if "github_app_id" in keys:
        credentials = {
            "kind": "githubApp",
            "appId": str(keys["github_app_id"]),
            "installationId": str(keys.get("github_app_installation_id", "")),
            "secretName": name,
        }
        return project | {"credentials": credentials}, "privateKey"
    return project | {"credentials": {"kind": "token", "secretName": name}}, "token"


def _ids(secret: GithubSecret) -> Mapping[str, Any]:
    """Return the IDs of a GitHub App as the chart's values have them; an unreadable one is empty, which is an invalid
    setting."""
    if secret.kind == "token":
        return {}
    return {"github_app_id": secret.app_id or "", "github_app_installation_id": secret.installation_id or ""}


def _proxy(value: Mapping[str, Any]) -> Entry:
    """Return the proxies of the chart's value `proxy`."""
    found: Entry = {}
    for kind in ("http", "https"):
        server = mapping(value.get(kind))
        if server:
            secret = server.get("credentialSecretRef")
            found[kind] = {"url": server.get("url")} | ({"credentialsSecret": secret} if secret else {})
    exceptions = value.get("noProxy")
    return found | ({"noProxy": exceptions} if exceptions else {})


def _certificate(value: Mapping[str, Any]) -> Entry:
    """Return the certificate authority of the chart's value `githubServerTLS`."""
    reference = mapping(mapping(value.get("certificateFrom")).get("configMapKeyRef"))
    if not reference:
        return {}
    mount = value.get("runnerMountPath")
    found = {"configMap": reference.get("name"), "key": reference.get("key")}
    return found | ({"runnerMountPath": mount} if mount else {})
