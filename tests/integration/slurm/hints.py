"""The hints of a lab's slurmctld, served as its init serves them in a cluster: a lab's network is its own."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from integration.apiserver import free_ports
from integration.slurm.lab import Lab

IMAGES = Path(__file__).parents[3] / "images/slurm"
EVERY = 0.005
"""Seconds between looks at the log; in a cluster it comes through a pipe, at once."""


@asynccontextmanager
async def served(lab: Lab) -> AsyncIterator[str]:
    """Follow the log from now on, and give the address at which a syncer finds the hints (`Settings.controller`)."""
    if str(IMAGES) not in sys.path:
        sys.path.insert(0, str(IMAGES))
    init_log, init_hints, init_server = (
        importlib.import_module(f"slurmctld_init.{name}") for name in ("log", "hints", "server")
    )
    ring = init_hints.Hints()

    async def answer(request: Any) -> tuple[HTTPStatus, object]:
        return HTTPStatus.OK, await ring.after(int(request.query.removeprefix("after=")))

    (port,) = free_ports(1)
    server = await init_server.Server({"GET /hints": answer}).serve(port)

    async def follow() -> None:
        with (lab.folder / "slurmctld.log").open("rb") as log:
            log.seek(0, 2)
            rest = b""
            while True:
                *lines, rest = (rest + log.read()).split(b"\n")
                for line in lines:
                    ring.hear(init_log.without_stamp(line.decode(errors="replace")))
                await asyncio.sleep(EVERY)

    following = asyncio.create_task(follow())
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        following.cancel()
        server.close()
