"""The AWS API of a sandbox, as a process: moto, and what it lacks, on loopback.

    python -m gpufleet_tools.sandbox.aws.server ACCOUNT KARPENTER PORT

ACCOUNT is a file with the account to make (account.py), KARPENTER the directory of Karpenter's build. The
account is made before anything is answered at PORT. Nothing is kept when the process ends, and the same resources get
the same ids when it starts again.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from gpufleet_tools.sandbox.aws.account import Account, read
from gpufleet_tools.sandbox.aws.answers import Answers
from gpufleet_tools.sandbox.aws.prices import on_demand
from gpufleet_tools.sandbox.aws.seeding import make

_LOOPBACK = "127.0.0.1"


def serve(account: Account, karpenter: Path, port: int) -> None:
    """Serves until the process is ended."""
    answers = Answers(on_demand(karpenter), account.reservations, DomainDispatcherApplication(create_backend_app))
    # At a port of its own: a Karpenter that runs already must not find half an account.
    making = make_server(_LOOPBACK, 0, repeatable(answers))
    threading.Thread(target=making.serve_forever, daemon=True).start()
    make(account, f"http://{_LOOPBACK}:{making.port}")
    making.shutdown()
    make_server(_LOOPBACK, port, answers, threaded=True).serve_forever()


def repeatable(moto: WSGIApplication) -> WSGIApplication:
    """The application with ids that follow from what is asked for: a resource has the same id each time, whatever else
    there is, and Karpenter sees no drift after a restart. For one request at a time."""
    asked: Counter[bytes] = Counter()

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        asked[body] += 1
        # moto draws every id from this.
        mock_random.seed(body + str(asked[body]).encode())
        return moto(environ, start_response)

    return application


if __name__ == "__main__":
    wanted, build, chosen = sys.argv[1:]
    serve(read(Path(wanted).read_text()), Path(build), int(chosen))
