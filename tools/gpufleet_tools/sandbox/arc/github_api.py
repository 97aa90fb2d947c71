"""HTTP routes of the simulated GitHub for ARC's client.

The client's requirements are in its source, client.go and session_client.go of actions/scaleset v0.4.0: status 201 for
tokens; 204 for every deletion, even of an agent that no longer exists (after 404 the controller would retry forever);
200 or 202 for a poll; 401 to request a new token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet_tools.sandbox.arc.github import GitHub, ScaleSet

SERVICE = "pipelines.actions.githubusercontent.com"
"""Host of the scale-set service in GitHub's responses."""

TOKEN_SECONDS = 3600.0
"""Validity of a token of the service."""

POLL_SECONDS = 50.0
"""Duration of a long poll."""

Answer = tuple[int, Any]

_NOT_FOUND: Answer = (404, {"typeName": "NotFoundException", "message": "not found"})
_UNAUTHORIZED: Answer = (401, {"message": "Bad credentials"})


@dataclass(frozen=True)
class Request:
    """One request of the client."""

    method: str
    path: str
    query: Mapping[str, str]
    authorization: str
    """Token without `Bearer`."""
    capacity: int
    """Maximum number of runners, in a poll."""
    body: Any


Signer = Callable[[str], str | None]
"""Function that takes a GitHub App's JSON web token and returns the fingerprint of its signer; None if unknown."""


def fingerprint(secret: bytes) -> str:
    """Return the fingerprint of a token or a public key, for tables and logs."""
    return hashlib.sha256(secret).hexdigest()[:12]


class Api:
    """The routes."""

    def __init__(self, github: GitHub, signer: Signer) -> None:
        self._github = github
        self._signer = signer
        self._routes: list[tuple[re.Pattern[str], Callable[..., Answer]]] = [
            (re.compile(r"(?:/api/v3)?/(?P<owner>.+)/actions/runners/registration-token"), self._registration_token),
            (re.compile(r"(?:/api/v3)?/app/installations/(?P<installation>\d+)/access_tokens"), self._access_token),
            (re.compile(r"(?:/api/v3)?/actions/runner-registration"), self._registration),
            (re.compile(r"/_apis/runtime/runnergroups/?"), self._runner_groups),
            (re.compile(r"/_apis/runtime/runnerscalesets"), self._scale_sets),
            (re.compile(r"/_apis/runtime/runnerscalesets/(?P<id>\d+)(?:/(?P<rest>.+))?"), self._scale_set),
            (re.compile(r"/_apis/distributedtask/pools/0/agents"), self._agents),
            (re.compile(r"/_apis/distributedtask/pools/0/agents/(?P<id>\d+)"), self._agent),
            (re.compile(r"/queue/(?P<id>\d+)(?:/(?P<message>\d+))?"), self._queue),
        ]

    def answer(self, request: Request) -> Answer:
        """Return status and body of the response to a request."""
        for pattern, route in self._routes:
            if found := pattern.fullmatch(request.path):
                return route(request, **found.groupdict())
        return _NOT_FOUND

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _access_token(self, request: Request, installation: str) -> Answer:
        """Return an access token for a GitHub App, whose web token must be signed with its private key."""
        signer = self._signer(request.authorization)
        if signer is None or signer in self._github.revoked:
            return _UNAUTHORIZED
        return 201, {"token": f"ghs_{signer}", "expires_at": _stamp(time.time() + TOKEN_SECONDS)}

    def _registration_token(self, request: Request, owner: str) -> Answer:
        credential = self._credential(request.authorization)
        with self._github.lock:
            self._github.used[credential] = owner.partition("/")[2]
        if credential in self._github.revoked:
            return _UNAUTHORIZED
        return 201, {"token": f"AREG{credential}", "expires_at": _stamp(time.time() + TOKEN_SECONDS)}

    def _registration(self, request: Request) -> Answer:
        credential = request.authorization.removeprefix("RemoteAuth ").removeprefix("AREG")
        if credential in self._github.revoked:
            return _UNAUTHORIZED
        return 200, {"url": f"https://{SERVICE}", "token": _token(credential), "token_schema": "OAuthAccessToken"}

    def _credential(self, authorization: str) -> str:
        """Return the fingerprint of the App's key in an installation's token, or that of any other token."""
        if authorization.startswith("ghs_"):
            return authorization.removeprefix("ghs_")
        return fingerprint(authorization.encode())

    # -- the service --------------------------------------------------------------------------------------------------

    def _runner_groups(self, request: Request) -> Answer:
        group = {"id": 1, "name": request.query.get("groupName", "Default"), "isDefaultGroup": True}
        return 200, {"count": 1, "value": [group]}

    def _scale_sets(self, request: Request) -> Answer:
        with self._github.lock:
            if request.method == "POST":
                return 200, self._github.new_scale_set(request.body).body
            name = request.query.get("name")
            found = [each.body for each in self._github.scale_sets.values() if each.body["name"] == name]
            return 200, {"count": len(found), "value": found}

    def _scale_set(self, request: Request, id: str, rest: str | None) -> Answer:
        with self._github.lock:
            scale_set = self._github.scale_sets.get(int(id))
            if scale_set is None:
                message = f"No runner scale set found with identifier {id}."
                return 404, {"typeName": "RunnerScaleSetNotFoundException", "message": message}
            if rest is None:
                return self._one(request, scale_set)
            if rest == "generatejitconfig":
                return self._jit_config(request, scale_set)
            if rest == "acquirejobs":
                taken = self._github.acquire(scale_set, request.body)
                return 200, {"count": len(taken), "value": taken}
            if rest == "sessions" and request.method == "POST":
                return self._new_session(request, scale_set)
            if rest.startswith("sessions/"):
                return self._session(request, scale_set, rest.partition("/")[2])
        return _NOT_FOUND

    def _one(self, request: Request, scale_set: ScaleSet) -> Answer:
        if request.method == "DELETE":
            self._github.delete_scale_set(scale_set)
            return 204, None
        if request.method == "PATCH":
            scale_set.body |= {key: value for key, value in request.body.items() if key != "id"}
            self._github.touch()
        return 200, {**scale_set.body, "statistics": self._github.statistics(scale_set)}

    def _jit_config(self, request: Request, scale_set: ScaleSet) -> Answer:
        name = request.body["name"]
        runner = self._github.register(scale_set, name)
        if runner is None:
            return 409, {"typeName": "AgentExistsException", "message": f"A runner with name {name} already exists."}
        reference = {"id": runner.id, "name": name, "runnerScaleSetId": scale_set.id}
        return 200, {"runner": reference, "encodedJITConfig": base64.b64encode(name.encode()).decode()}

    def _new_session(self, request: Request, scale_set: ScaleSet) -> Answer:
        credential = _credential_of(request.authorization)
        if credential in self._github.revoked:
            return _UNAUTHORIZED
        owner = request.body.get("ownerName", "")
        session = self._github.open_session(scale_set, owner, credential, _token(credential))
        if session is None:
            assert scale_set.session is not None
            message = f"The runner scale set has an active session for owner {scale_set.session.owner}."
            return 409, {"typeName": "TaskAgentSessionConflictException", "message": message}
        return 200, self._session_body(scale_set)

    def _session(self, request: Request, scale_set: ScaleSet, id: str) -> Answer:
        session = scale_set.session
        if session is None or session.id != id:
            return _NOT_FOUND
        if request.method == "DELETE":
            self._github.close_session(scale_set)
            return 204, None
        if _credential_of(request.authorization) in self._github.revoked:
            return _UNAUTHORIZED
        session.token = _token(session.credential)
        return 200, self._session_body(scale_set)

    def _session_body(self, scale_set: ScaleSet) -> dict[str, Any]:
        session = scale_set.session
        assert session is not None
        return {
            "sessionId": session.id,
            "ownerName": session.owner,
            "runnerScaleSet": scale_set.body,
            "messageQueueUrl": f"https://{SERVICE}/queue/{scale_set.id}",
            "messageQueueAccessToken": session.token,
            "statistics": self._github.statistics(scale_set),
        }

    # -- agents and messages ------------------------------------------------------------------------------------------

    def _agents(self, request: Request) -> Answer:
        with self._github.lock:
            runner = self._github.runners.get(request.query.get("agentName", ""))
            found = [{"id": runner.id, "name": runner.name, "runnerScaleSetId": runner.scale_set}] if runner else []
            return 200, {"count": len(found), "value": found}

    def _agent(self, request: Request, id: str) -> Answer:
        with self._github.lock:
            runner = next((each for each in self._github.runners.values() if each.id == int(id)), None)
            if request.method == "DELETE":
                if runner is None or self._github.unregister(runner):
                    return 204, None
                return 400, {"typeName": "JobStillRunningException", "message": "The runner has a job."}
            if runner is None:
                return 404, {"typeName": "AgentNotFoundException", "message": f"No agent with id {id}."}
            return 200, {"id": runner.id, "name": runner.name, "runnerScaleSetId": runner.scale_set}

    def _queue(self, request: Request, id: str, message: str | None) -> Answer:
        with self._github.lock:
            scale_set = self._github.scale_sets.get(int(id))
            session = scale_set.session if scale_set else None
            if session is None or request.authorization != session.token or session.credential in self._github.revoked:
                return _UNAUTHORIZED
            if request.method == "DELETE":
                session.messages = [each for each in session.messages if each[0] > int(message or 0)]
                return 204, None
        assert scale_set is not None
        found = self._github.poll(scale_set, session, request.capacity, POLL_SECONDS)
        if session.credential in self._github.revoked:
            return _UNAUTHORIZED
        return (202, None) if found is None else (200, found)


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _token(credential: str) -> str:
    """Return a token of the service. The client reads only its expiry."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"exp": int(time.time() + TOKEN_SECONDS), "credential": credential}
    return ".".join((part({"alg": "HS256", "typ": "JWT"}), part(claims), "c2ln"))


def _credential_of(token: str) -> str:
    """Return the credential for which a token of the service was issued."""
    try:
        part = token.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["credential"])
    except (IndexError, KeyError, ValueError):
        return ""
