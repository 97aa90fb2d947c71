"""Kubeconfigs as configurations of the Kubernetes client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml
from kubernetes import client, config


class InvalidKubeconfig(Exception):
    """The kubeconfig or its context cannot be used. `str()` is one line: file and reason."""


def client_configuration(file: Path | None, context: str | None = None) -> client.Configuration:
    """Return the client configuration of a context; None for the files in $KUBECONFIG or ~/.kube/config, and for the
    current context. Raises InvalidKubeconfig."""
    settings = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    try:
        load(config_file=str(file) if file else None, context=context, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        message = " ".join(str(error).split()).rstrip(".")
    except (TypeError, KeyError, AttributeError, yaml.YAMLError):
        # The client does not validate the file.
        message = "it is no kubeconfig"
    else:
        return settings
    raise InvalidKubeconfig(f"{file or '$KUBECONFIG or ~/.kube/config'}: {message}")
