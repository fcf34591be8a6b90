"""Show the runs of the database while they go, on a page of this computer."""

from __future__ import annotations

import argparse
import threading

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import duration, whole_number, wrong
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import opened
from autoturbo.schema import TypedDict

USAGE = "[--port N] [--for TIME] [options]"
EXAMPLE = "autoturbo dashboard --port 8765"

_HOST = "127.0.0.1"
_PORT = 8765
_PORTS = 1 << 16


class DashboardLine(TypedDict):
    """Where the page is, and what it shows."""

    url: str
    database: str


LINES = {"": DashboardLine}


def add_arguments(parser: Parser) -> None:
    """Add the port, and how long it is served."""
    text = f"port of {_HOST} (default: {_PORT}); 0 takes a free one"
    parser.add_argument(
        "--port", metavar="N", type=whole_number("--port", 0), default=_PORT, help=text
    )
    text = "end after that time (default: with Ctrl-C)"
    parser.add_argument("--for", dest="for_s", metavar="TIME", type=duration("--for"), help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Serve the page until the time is up or Ctrl-C comes."""
    from autoturbo.commands.tuning.page_server import served

    opened(options.db).close()  # a database that cannot be read is said here, not on the page
    if options.port >= _PORTS:
        raise wrong("--port", str(options.port), f"at most {_PORTS - 1}")
    try:
        server = served(_HOST, options.port, options.db)
    except OSError as error:
        raise wrong("--port", f"{options.port}: {error.strerror}", "take another, or 0") from None
    url = f"http://{_HOST}:{server.server_port}/"
    line: DashboardLine = {"url": url, "database": str(options.db)}
    console.emit(line)
    console.answer(f"{url} shows the runs of {options.db}; Ctrl-C ends it")
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            threading.Event().wait(options.for_s)
        except KeyboardInterrupt:
            console.say("ended")
        finally:
            server.shutdown()
    return 0
