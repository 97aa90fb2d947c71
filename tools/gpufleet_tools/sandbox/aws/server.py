"""Process with the AWS API of a sandbox: moto and additional responses, on loopback.

    python -m gpufleet_tools.sandbox.aws.server ACCOUNT KARPENTER PORT

ACCOUNT is a file with the account (account.py), KARPENTER the directory of Karpenter's build. The account is created
before the server listens at PORT. The state is lost when the process ends; after a restart, the same resources get the
same IDs.
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
from gpufleet_tools.sandbox.aws.seeding import create

_LOOPBACK = "127.0.0.1"


def serve(account: Account, karpenter: Path, port: int) -> None:
    """Serve until the process is ended."""
    answers = Answers(on_demand(karpenter), account.reservations, DomainDispatcherApplication(create_backend_app))
    # The account is created at another port: a running Karpenter must not read an incomplete account.
    temporary = make_server(_LOOPBACK, 0, repeatable(answers))
    threading.Thread(target=temporary.serve_forever, daemon=True).start()
    create(account, f"http://{_LOOPBACK}:{temporary.port}")
    temporary.shutdown()
    make_server(_LOOPBACK, port, answers, threaded=True).serve_forever()


def repeatable(moto: WSGIApplication) -> WSGIApplication:
    """Return the application with IDs that depend only on the request, so that Karpenter sees no drift after a restart.
    It supports one request at a time."""
    requests: Counter[bytes] = Counter()

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        requests[body] += 1
        # moto generates all IDs with this generator.
        mock_random.seed(body + str(requests[body]).encode())
        return moto(environ, start_response)

    return application


if __name__ == "__main__":
    wanted, build, chosen = sys.argv[1:]
    serve(read(Path(wanted).read_text()), Path(build), int(chosen))
