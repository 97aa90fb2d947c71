"""A cluster's network: changes of zones that EKS rejects or that take running jobs off the network, and networks that
may newly reach the API server."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.diff.evaluation import EvaluatedStack

_NETWORK = ("cluster", "network")


def refused_zone_changes(before: EvaluatedStack, after: EvaluatedStack) -> Iterator[tuple[str, str]]:
    """Yield changes of zones that EKS rejects or that cut off running jobs, as name and message."""
    old, new = (dict(side.settings or ()) for side in (before, after))
    was, now = _control_plane(old), _control_plane(new)
    if was and now and was != now:
        yield (
            "control-plane-zones",
            f"zones of the control plane {', '.join(sorted(was))} → {', '.join(sorted(now))}: EKS keeps the zones that"
            " a cluster was created with, so pulumi up would fail; keep these zones in cluster.network, and set"
            f" controlPlaneZones: [{', '.join(sorted(was))}] there to add others for jobs; to keep jobs out of a zone,"
            " use nodePools.<pool>.zones",
        )
    # Subnets of an existing network stay when the stack file omits them.
    gone = _own(old) - _own(new) - was if _own(new) else frozenset[str]()
    if gone:
        yield (
            "zone-removed",
            f"zone {listed(sorted(gone), 'and')} of the network is removed: its subnets and routes are deleted, and"
            " jobs that run there lose their connections; first use nodePools.<pool>.zones to keep all pools out of"
            " it, wait until no node is left there, then remove it with --allow zone-removed",
        )


def refused_admissions(before: EvaluatedStack, after: EvaluatedStack) -> Iterator[tuple[str, str]]:
    """Yield networks that may newly reach the API server over the internet, as name and message."""
    if before.settings is None or after.settings is None:
        return
    was, now = (_admitted(dict(side.settings or ())) for side in (before, after))
    new = [each for each in now if not any(each.subnet_of(old) for old in was)]
    if new:
        # Imported here: it imports the SDK, which takes half a second.
        from gpufleet.aws.eks.cluster_rules import WIDEST_PREFIX

        # Wider networks are the finding `open-endpoint`.
        new = [each for each in new if each.prefixlen >= WIDEST_PREFIX]
    if new:
        yield (
            "endpoint-opened",
            f"{listed([str(each) for each in new], 'and')} may newly reach the public endpoint of the API server, until"
            f" now {listed([str(each) for each in was], 'and') or 'no network'}; admit your own networks only, then"
            " allow it with --allow endpoint-opened",
        )


def _admitted(settings: Mapping[tuple[str, ...], str]) -> Sequence[ipaddress.IPv4Network]:
    """Return the networks that may reach the public endpoint; adjacent ones are merged."""
    text = settings.get(("cluster", "endpoint", "publicAccessFrom"), "")
    networks = (ipaddress.IPv4Network(each, strict=False) for each in text.split(", ") if each)
    return list(ipaddress.collapse_addresses(networks))


def _control_plane(settings: Mapping[tuple[str, ...], str]) -> frozenset[str]:
    """Return the zones of the control plane: the stated ones, or else all zones of the network."""
    stated = settings.get((*_NETWORK, "controlPlaneZones"))
    subnets = settings.get((*_NETWORK, "privateSubnets"), "")
    of_subnets = frozenset(pair.partition("=")[0] for pair in subnets.split(", ") if pair)
    return _zones(stated) if stated else _own(settings) or of_subnets


def _own(settings: Mapping[tuple[str, ...], str]) -> frozenset[str]:
    """Return the zones of a network that the stack creates."""
    return _zones(settings.get((*_NETWORK, "zones"), ""))


def _zones(text: str) -> frozenset[str]:
    return frozenset(zone for zone in text.split(", ") if zone)
