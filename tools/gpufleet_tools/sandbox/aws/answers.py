"""Simulated responses of AWS that moto lacks: a layer in front of moto, for the requests of Karpenter.

All simulated responses:

- Pricing GetProducts: list prices of us-east-1 for every region (tools/gpufleet_tools/sandbox/aws/prices.py).
- EC2 DescribeSpotPriceHistory: the on-demand price in every zone, as Karpenter assumes without prices. moto returns
  0.00001 for every type, so that Karpenter's choice would be random.
- SSM GetParameter below /aws/service/eks and /aws/service/bottlerocket, and EC2 DescribeImages for their values: every
  alias exists for every version of Kubernetes, whether AWS has published it or not.
- EC2 DescribeCapacityReservations: those of the account, with all instances available; the simulated EC2 subtracts its
  running instances (tools/gpufleet_tools/sandbox/build/karpenter.py).
- EC2 DescribePlacementGroups: every requested group exists, with strategy `cluster`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from xml.etree import ElementTree

from gpufleet_tools.sandbox.aws.account import CapacityReservation

_EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
READY = "/ready"
"""Path that AWS does not have. A response means that the account has been created."""
_PUBLISHED = ("/aws/service/eks/optimized-ami/", "/aws/service/bottlerocket/")

Parameters = Mapping[str, list[str]]


class Answers:
    """WSGI application that handles some requests itself and passes the others to moto."""

    def __init__(
        self, prices: Mapping[str, float], reservations: Sequence[CapacityReservation], moto: WSGIApplication
    ) -> None:
        self._prices = prices
        self._reservations = reservations
        self._moto = moto
        self._images: dict[str, str] = {}
        """Names of SSM parameters, by the image ID in the response."""
        self._json: Mapping[str, Callable[[Any], dict[str, Any] | None]] = {
            "AWSPriceListService.GetProducts": self._products,
            "AmazonSSM.GetParameter": self._parameter,
        }
        self._ec2: Mapping[str, Callable[[Parameters, WSGIEnvironment], bytes | None]] = {
            "DescribeCapacityReservations": self._described_reservations,
            "DescribePlacementGroups": lambda parameters, _: _placement_groups(parameters),
            "DescribeImages": self._described_images,
            "DescribeSpotPriceHistory": self._spot_prices,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == READY:
            return _answered(start_response, "text/plain", b"")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if handler := self._json.get(environ.get("HTTP_X_AMZ_TARGET", "")):
            answer = handler(json.loads(body))
            if answer is not None:
                return _answered(start_response, "application/x-amz-json-1.1", json.dumps(answer).encode())
        if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            parameters = parse_qs(body.decode())
            action = self._ec2.get(parameters.get("Action", [""])[0])
            if action is not None and (found := action(parameters, environ)) is not None:
                return _answered(start_response, "text/xml", found)
            environ["wsgi.input"] = io.BytesIO(body)
        return self._moto(environ, start_response)

    def _products(self, request: Any) -> dict[str, Any]:
        tenancy = {each["Field"]: each["Value"] for each in request.get("Filters", [])}.get("tenancy")
        # Karpenter requests bare metal instances as dedicated, all others as shared.
        metal = tenancy == "Dedicated"
        found = {name: price for name, price in self._prices.items() if (".metal" in name) == metal}
        return {"FormatVersion": "aws_v1", "PriceList": [_product(name, price) for name, price in found.items()]}

    def _parameter(self, request: Any) -> dict[str, Any] | None:
        name = str(request["Name"])
        if not name.startswith(_PUBLISHED):
            return None
        image = f"ami-{hashlib.sha256(name.encode()).hexdigest()[:17]}"
        self._images[image] = name
        return {"Parameter": {"Name": name, "Type": "String", "Value": image, "Version": 1, "DataType": "text"}}

    def _described_reservations(self, parameters: Parameters, _environ: WSGIEnvironment) -> bytes:
        ids = {values[0] for key, values in parameters.items() if key.startswith("CapacityReservationId.")}
        found = [
            each
            for each in self._reservations
            if (not ids or each.id in ids) and all(_has(each, name, values) for name, values in _filters(parameters))
        ]
        return _listed("DescribeCapacityReservations", "capacityReservationSet", *map(_described, found))

    def _described_images(self, parameters: Parameters, _environ: WSGIEnvironment) -> bytes | None:
        wanted = [value for values in parameters.values() for value in values if value in self._images]
        if not wanted:
            return None
        return _listed("DescribeImages", "imagesSet", *(_image(each, self._images[each]) for each in wanted))

    def _spot_prices(self, _parameters: Parameters, environ: WSGIEnvironment) -> bytes:
        """Return moto's response, which has every type in every zone, with other prices."""
        body = b"".join(self._moto(environ, lambda *_: lambda _data: None))
        root = ElementTree.fromstring(body)
        history = root.find("{*}spotPriceHistorySet")
        for item in list(history if history is not None else ()):
            kind = item.findtext("{*}instanceType", "")
            price = item.find("{*}spotPrice")
            if kind in self._prices and price is not None:
                price.text = f"{self._prices[kind]:.6f}"
            elif history is not None:
                history.remove(item)
        return bytes(ElementTree.tostring(root))


def _placement_groups(parameters: Parameters) -> bytes:
    """Return the requested groups; Karpenter requests one, by name or ID."""
    found = []
    for name in parameters.get("GroupName.1", []):
        found.append({"groupName": name, "groupId": f"pg-{hashlib.sha256(name.encode()).hexdigest()[:17]}"})
    for id_ in parameters.get("GroupId.1", []):
        found.append({"groupName": id_, "groupId": id_})
    state = {"state": "available", "strategy": "cluster"}
    return _listed("DescribePlacementGroups", "placementGroupSet", *(each | state for each in found))


def _product(name: str, price: float) -> str:
    terms = {"term": {"priceDimensions": {"dimension": {"pricePerUnit": {"USD": f"{price:.6f}"}}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": {"OnDemand": terms}})


def _filters(parameters: Parameters) -> Iterator[tuple[str, list[str]]]:
    """Yield the filters of a request to EC2: `Filter.1.Name`, `Filter.1.Value.1` and so on."""
    for key, names in parameters.items():
        number = re.fullmatch(r"Filter\.(\d+)\.Name", key)
        if number:
            prefix = f"Filter.{number[1]}.Value."
            matching = (values for name, values in parameters.items() if name.startswith(prefix))
            yield names[0], [value for values in matching for value in values]


def _has(reservation: CapacityReservation, name: str, values: Sequence[str]) -> bool:
    """Return whether a filter of DescribeCapacityReservations admits a reservation. Supports the filters of Karpenter
    (`DescribeCapacityReservationsInput` in pkg/providers/capacityreservation/types.go at v1.14.1)."""
    if name == "tag-key":
        return any(value in reservation.tags for value in values)
    if name.startswith("tag:"):
        return reservation.tags.get(name.removeprefix("tag:")) in values
    own = {"state": "active", "owner-id": reservation.owner, "instance-match-criteria": reservation.match_criteria}
    return own.get(name) in values


def _described(reservation: CapacityReservation) -> Mapping[str, str]:
    return {
        "capacityReservationId": reservation.id,
        "ownerId": reservation.owner,
        "instanceType": reservation.instance_type,
        "instancePlatform": "Linux/UNIX",
        "availabilityZone": reservation.zone,
        "tenancy": "default",
        "totalInstanceCount": str(reservation.instances),
        "availableInstanceCount": str(reservation.instances),
        "state": "active",
        "instanceMatchCriteria": reservation.match_criteria,
        "reservationType": "capacity-block" if reservation.block else "default",
    }


def _image(image: str, parameter: str) -> Mapping[str, str]:
    return {
        "imageId": image,
        "name": parameter,
        "imageLocation": parameter,
        "imageState": "available",
        "imageOwnerId": "602401143452",
        "isPublic": "true",
        "architecture": "arm64" if "arm64" in parameter else "x86_64",
        "imageType": "machine",
        "creationDate": "2025-01-01T00:00:00.000Z",
        "rootDeviceType": "ebs",
        "rootDeviceName": "/dev/xvda",
        "virtualizationType": "hvm",
        "hypervisor": "xen",
    }


def _listed(action: str, name: str, *items: Mapping[str, str]) -> bytes:
    """Return a response of EC2 with one list of flat items."""
    root = ElementTree.Element(f"{action}Response", xmlns=_EC2_NAMESPACE)
    ElementTree.SubElement(root, "requestId").text = "00000000-0000-0000-0000-000000000000"
    found = ElementTree.SubElement(root, name)
    for item in items:
        each = ElementTree.SubElement(found, "item")
        for key, value in item.items():
            ElementTree.SubElement(each, key).text = value
    return bytes(ElementTree.tostring(root))


def _answered(start_response: StartResponse, kind: str, body: bytes) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
