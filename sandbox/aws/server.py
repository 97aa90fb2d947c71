"""The AWS API of a sandbox, as a process: moto, and what it lacks, on loopback.

    python -m sandbox.aws.server ACCOUNT KARPENTER PORT

ACCOUNT is a file with the account to make (sandbox/aws/account.py), KARPENTER the directory of Karpenter's build. The
account is made before anything else is answered: GET /ready says so. Nothing is kept when the process ends, and the
same account gets the same ids when it starts again.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from sandbox.aws.account import Account
from sandbox.aws.answers import Answers
from sandbox.aws.prices import on_demand
from sandbox.aws.seeding import make

READY = "/ready"
_SEED = 1
_LOOPBACK = "127.0.0.1"


def serve(account: Account, karpenter: Path, port: int) -> None:
    """Serves until the process is ended."""
    answers = Answers(on_demand(karpenter), DomainDispatcherApplication(create_backend_app))
    made = threading.Event()

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == READY:
            start_response("200 OK" if made.is_set() else "503 Service Unavailable", [("Content-Length", "0")])
            return []
        return answers(environ, start_response)

    server = make_server(_LOOPBACK, port, application, threaded=True)
    # Ends with us: an account that cannot be made is the end of the process, and its last words say why.
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    # moto draws ids from this: the same account has the same subnets after a restart, and Karpenter sees no drift.
    mock_random.seed(_SEED)
    make(account, f"http://{_LOOPBACK}:{port}")
    made.set()
    serving.join()


if __name__ == "__main__":
    wanted, build, chosen = sys.argv[1:]
    serve(Account(**json.loads(Path(wanted).read_text())), Path(build), int(chosen))
