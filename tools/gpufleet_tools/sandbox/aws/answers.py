"""What AWS would answer and moto does not: a thin layer in front of moto, for Karpenter's questions alone.

What it stands for, all in one place:

- Pricing GetProducts: list prices of us-east-1, whatever the region (tools/gpufleet_tools/sandbox/aws/prices.py).
- EC2 DescribeSpotPriceHistory: the on-demand price in every zone, as Karpenter assumes before it has heard any. moto
  would say 0.00001 for every type, and which one Karpenter takes would be chance.
- SSM GetParameter below /aws/service/eks and /aws/service/bottlerocket, and EC2 DescribeImages for what that named:
  every alias exists, for every version of Kubernetes. Whether AWS ever published it is not known here.
- EC2 DescribeCapacityReservations: those of the account, with every place free; the simulated EC2 takes off what its
  instances have (tools/gpufleet_tools/sandbox/build/karpenter.py).
- EC2 DescribePlacementGroups: the account has none.
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
"""A path that AWS has not: an answer there means that the account is made."""
_PUBLISHED = ("/aws/service/eks/optimized-ami/", "/aws/service/bottlerocket/")

Parameters = Mapping[str, list[str]]


class Answers:
    """A WSGI application that answers some requests itself and hands the rest on."""

    def __init__(
        self, prices: Mapping[str, float], reservations: Sequence[CapacityReservation], moto: WSGIApplication
    ) -> None:
        self._prices = prices
        self._reservations = reservations
        self._moto = moto
        self._images: dict[str, str] = {}
        """Names of SSM parameters, by the image id that was answered."""
        self._json: Mapping[str, Callable[[Any], dict[str, Any] | None]] = {
            "AWSPriceListService.GetProducts": self._products,
            "AmazonSSM.GetParameter": self._parameter,
        }
        self._ec2: Mapping[str, Callable[[Parameters, WSGIEnvironment], bytes | None]] = {
            "DescribeCapacityReservations": self._described_reservations,
            "DescribePlacementGroups": lambda *_: _listed("DescribePlacementGroups", "placementGroupSet"),
            "DescribeImages": self._described_images,
            "DescribeSpotPriceHistory": self._spot_prices,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == READY:
            return _answered(start_response, "text/plain", b"")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if own := self._json.get(environ.get("HTTP_X_AMZ_TARGET", "")):
            answer = own(json.loads(body))
            if answer is not None:
                return _answered(start_response, "application/x-amz-json-1.1", json.dumps(answer).encode())
        if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            parameters = parse_qs(body.decode())
            asked = self._ec2.get(parameters.get("Action", [""])[0])
            if asked is not None and (found := asked(parameters, environ)) is not None:
                return _answered(start_response, "text/xml", found)
            environ["wsgi.input"] = io.BytesIO(body)
        return self._moto(environ, start_response)

    def _products(self, asked: Any) -> dict[str, Any]:
        tenancy = {each["Field"]: each["Value"] for each in asked.get("Filters", [])}.get("tenancy")
        # Bare metal is listed as dedicated, everything else that Karpenter asks for as shared.
        metal = tenancy == "Dedicated"
        found = {name: price for name, price in self._prices.items() if (".metal" in name) == metal}
        return {"FormatVersion": "aws_v1", "PriceList": [_product(name, price) for name, price in found.items()]}

    def _parameter(self, asked: Any) -> dict[str, Any] | None:
        name = str(asked["Name"])
        if not name.startswith(_PUBLISHED):
            return None
        image = f"ami-{hashlib.sha256(name.encode()).hexdigest()[:17]}"
        self._images[image] = name
        return {"Parameter": {"Name": name, "Type": "String", "Value": image, "Version": 1, "DataType": "text"}}

    def _described_reservations(self, asked: Parameters, _environ: WSGIEnvironment) -> bytes:
        ids = {values[0] for key, values in asked.items() if key.startswith("CapacityReservationId.")}
        found = [
            each
            for each in self._reservations
            if (not ids or each.id in ids) and all(_has(each, name, values) for name, values in _filters(asked))
        ]
        return _listed("DescribeCapacityReservations", "capacityReservationSet", *map(_described, found))

    def _described_images(self, asked: Parameters, _environ: WSGIEnvironment) -> bytes | None:
        wanted = [value for values in asked.values() for value in values if value in self._images]
        if not wanted:
            return None
        return _listed("DescribeImages", "imagesSet", *(_image(each, self._images[each]) for each in wanted))

    def _spot_prices(self, _asked: Parameters, environ: WSGIEnvironment) -> bytes:
        """moto's own answer, which has every type in every zone, with other prices."""
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


def _product(name: str, price: float) -> str:
    terms = {"term": {"priceDimensions": {"dimension": {"pricePerUnit": {"USD": f"{price:.6f}"}}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": {"OnDemand": terms}})


def _filters(asked: Parameters) -> Iterator[tuple[str, list[str]]]:
    """Filters of a request to EC2: `Filter.1.Name`, `Filter.1.Value.1` and so on."""
    for key, names in asked.items():
        number = re.fullmatch(r"Filter\.(\d+)\.Name", key)
        if number:
            prefix = f"Filter.{number[1]}.Value."
            yield names[0], [value for name, values in asked.items() if name.startswith(prefix) for value in values]


def _has(reservation: CapacityReservation, name: str, values: Sequence[str]) -> bool:
    """Whether a filter of DescribeCapacityReservations admits a reservation: those by which Karpenter asks
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
    """An answer of EC2: one list of flat items."""
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
