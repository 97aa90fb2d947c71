"""A stack file of a small cluster: one pool of machines, one project, and what a test is about."""

from __future__ import annotations


def lab(
    runners: str,
    *,
    allocatable: str = "{cpu: 190, memory: 2200Gi, ephemeralStorage: 3400Gi}",
    nodes: str = "{lab-1: {address: 203.0.113.1}}",
    further: str = "",
) -> str:
    """Its text. `runners` and `further` sections end it, each line indented as it stands there; the others are YAML."""
    return f"""\
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {{kind: context, context: lab}}
    nodePools:
      mi300x:
        accelerator: {{vendor: amd, model: MI300X, count: 8}}
        allocatable: {allocatable}
        labels: {{accelerator: amd-mi300x}}
        nodes: {nodes}
  gpu-runners:projects:
    lab:
      configUrl: https://github.com/example/lab
      namespace: lab
      credentials: {{kind: token, secretName: token}}
  gpu-runners:lab-token: {{secure: v1:first}}
{further}  gpu-runners:runners:
{runners}"""
