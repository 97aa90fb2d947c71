"""Reading of a cluster: lists without objects, and logs that are not written yet. The API server is simulated."""

from __future__ import annotations

import types
from typing import Any

import pytest

from gpufleet_tools.api_server import ApiError
from gpufleet_tools.doctor import reading
from gpufleet_tools.doctor.reading import Scope, Unread

SCOPE = Scope(controller="arc-systems", runners=["project"], devices=[], secrets=())


class Api:
    """An API server without objects, whose answers for a log are given."""

    settings = types.SimpleNamespace(host="https://simulated")

    def __init__(self, *logs: str | ApiError) -> None:
        self.logs = list(logs)

    def call(self, _method: str, path: str, **_: Any) -> tuple[int, dict[str, Any]]:
        if "customresourcedefinitions" in path:
            raise ApiError(404, "not found")
        return 200, {"gitVersion": "v1.36.1"} if path == "/version" else {"items": []}

    def text(self, _path: str, _query: Any) -> str:
        answer = self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def logs(api: Api) -> reading.Snapshot:
    return reading.read(api, SCOPE, lambda _: [("arc-systems", "listener")])  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOG_PAUSE", 0.0)
    monkeypatch.setattr(reading, "LOG_SECONDS", 1.0)


def test_a_log_is_read_until_it_has_the_error() -> None:
    last = f"x\n2026/11/22 18:17:33 {reading.LAST_WORDS}: no"
    api = Api(ApiError(400, "container creating"), "", "x\n", last, "of the next pod")
    found = logs(api)
    assert found.logs == {"listener": last}
    assert found.lists.keys() == reading.QUERIES.keys()
    assert found.crds == {}


def test_a_log_without_an_error_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOG_SECONDS", 0.05)
    assert logs(Api("polls")).logs == {"listener": "polls"}


def test_a_log_that_may_not_be_read_is_asked_for_once() -> None:
    api = Api(ApiError(403, "forbidden"), "never")
    found = logs(api)
    assert found.logs == {}
    assert found.unread == (Unread("get", "pods/log", "arc-systems", "reasons why listeners end"),)
    assert api.logs == ["never"]
