"""The simulated GitHub, asked as ARC's client asks it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet_tools.sandbox.arc.github import GitHub
from gpufleet_tools.sandbox.arc.github_api import Api, Request

TOKEN = "ghp_0123"


class Client:
    """Calls routes, and keeps the tokens that it is given."""

    def __init__(self, github: GitHub) -> None:
        self.github = github
        self.api = Api(github, lambda token: {"signed-by-one": "one"}.get(token))
        self.admin = ""

    def call(self, method: str, path: str, token: str = "", body: Any = None, **query: str) -> tuple[int, Any]:
        capacity = int(query.pop("capacity", 0))
        return self.api.answer(Request(method, path, query, token, capacity, body))

    def register(self, token: str = TOKEN) -> int:
        status, answer = self.call("POST", "/orgs/pytorch/actions/runners/registration-token", token)
        if status == 201:
            status, answer = self.call("POST", "/actions/runner-registration", f"RemoteAuth {answer['token']}")
            self.admin = answer["token"]
        return status

    def scale_set(self, name: str = "label") -> int:
        body = {"name": name, "labels": [{"name": name, "type": "System"}]}
        return int(self.call("POST", "/_apis/runtime/runnerscalesets", self.admin, body)[1]["id"])

    def session(self, id: int, owner: str = "listener") -> tuple[int, Any]:
        path = f"/_apis/runtime/runnerscalesets/{id}/sessions"
        return self.call("POST", path, self.admin, {"ownerName": owner})

    def poll(self, session: Any, capacity: int) -> tuple[int, Any]:
        id = session["messageQueueUrl"].rpartition("/")[2]
        status, answer = self.call("GET", f"/queue/{id}", session["messageQueueAccessToken"], capacity=str(capacity))
        if status == 200:
            self.call("DELETE", f"/queue/{id}/{answer['messageId']}", session["messageQueueAccessToken"])
            answer = answer | {"body": json.loads(answer["body"])}
        return status, answer


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(GitHub())
    with made.github.lock:
        assert made.register() == 200
        yield made


def kinds(answer: Any) -> list[str]:
    return [each["messageType"] for each in answer["body"]]


def test_a_job_goes_from_the_queue_to_a_runner_and_is_done(client: Client) -> None:
    id = client.scale_set()
    session = client.session(id)[1]
    client.github.queue("label", 3, None)
    offered = client.poll(session, 2)[1]
    assert kinds(offered) == ["JobAvailable"] * 2, "no more than the listener has room for"
    ids = [each["runnerRequestId"] for each in offered["body"]]
    path = f"/_apis/runtime/runnerscalesets/{id}"
    assert client.call("POST", f"{path}/acquirejobs", client.admin, ids)[1]["value"] == ids
    assigned = client.poll(session, 2)[1]
    assert kinds(assigned) == ["JobAssigned"] * 2
    assert assigned["statistics"]["totalAssignedJobs"] == 2
    runner = client.call("POST", f"{path}/generatejitconfig", client.admin, {"name": "runner-1"})[1]["runner"]
    assert client.github.runner_starts("runner-1", "image:1")
    started = client.poll(session, 2)[1]
    assert [(each["messageType"], each["runnerName"]) for each in started["body"]] == [("JobStarted", "runner-1")]
    agent = f"/_apis/distributedtask/pools/0/agents/{runner['id']}"
    assert client.call("DELETE", agent)[1]["typeName"] == "JobStillRunningException"
    client.github.end(client.github.jobs[ids[0]], "succeeded")
    assert kinds(client.poll(session, 2)[1])[0] == "JobCompleted"
    assert client.call("DELETE", agent)[0] == 204, "also of a runner that is gone"


def test_one_session_at_a_time(client: Client) -> None:
    id = client.scale_set()
    first = client.session(id, "one")[1]
    status, answer = client.session(id, "two")
    assert (status, answer["typeName"]) == (409, "TaskAgentSessionConflictException")
    path = f"/_apis/runtime/runnerscalesets/{id}/sessions/{first['sessionId']}"
    assert client.call("DELETE", path, client.admin)[0] == 204
    assert client.session(id, "two")[0] == 200


def test_a_revoked_token_is_refused_everywhere(client: Client) -> None:
    id = client.scale_set()
    session = client.session(id)[1]
    client.github.revoked |= {*client.github.used}
    assert client.register() == 401
    assert client.poll(session, 1)[0] == 401
    path = f"/_apis/runtime/runnerscalesets/{id}/sessions/{session['sessionId']}"
    assert client.call("PATCH", path, client.admin)[0] == 401
    assert client.register("ghp_another") == 200


def test_an_app_is_known_by_the_key_that_signs(client: Client) -> None:
    path = "/app/installations/1/access_tokens"
    status, answer = client.call("POST", path, "signed-by-one")
    assert status == 201
    assert client.register(answer["token"]) == 200
    assert client.github.used["one"] == "pytorch"
    client.github.revoked.add("one")
    assert client.call("POST", path, "signed-by-one")[0] == 401
    assert client.call("POST", path, "signed by nobody")[0] == 401


def test_jobs_of_a_deleted_scale_set_wait_for_the_next(client: Client) -> None:
    id = client.scale_set()
    session = client.session(id)[1]
    client.github.queue("label", 1, None)
    ids = [each["runnerRequestId"] for each in client.poll(session, 1)[1]["body"]]
    client.call("POST", f"/_apis/runtime/runnerscalesets/{id}/acquirejobs", client.admin, ids)
    assert client.call("DELETE", f"/_apis/runtime/runnerscalesets/{id}", client.admin)[0] == 204
    assert client.call("GET", f"/_apis/runtime/runnerscalesets/{id}", client.admin)[0] == 404
    assert [job.state for job in client.github.jobs.values()] == ["queued"]
    again = client.session(client.scale_set())[1]
    assert kinds(client.poll(again, 1)[1]) == ["JobAvailable"]


def test_a_runner_that_is_too_old_gets_no_job(client: Client) -> None:
    id = client.scale_set()
    client.call("POST", f"/_apis/runtime/runnerscalesets/{id}/generatejitconfig", client.admin, {"name": "old"})
    client.github.too_old.add(("label", "image:1"))
    assert not client.github.runner_starts("old", "image:1")
    assert client.github.runner_starts("old", "image:2")


def test_the_state_outlives_the_process(client: Client) -> None:
    id = client.scale_set()
    client.github.queue("label", 2, None)
    client.github.revoked.add("x")
    again: GitHub = pickle.loads(pickle.dumps(client.github))
    assert (list(again.scale_sets), len(again.jobs), again.revoked) == ([id], 2, {"x"})
    with again.lock:
        again.queue("label", 1, None)
    assert len(again.jobs) == 3, "ids go on"
