"""What the syncer and the scheduler ask slurmctld's init, and what it answers.

    GET /                    what is in force, which life of slurmctld this is, and how the gate stands
    GET /hints?after=NUMBER  nodes of which the log has spoken     waits for news
    GET /jobs?after=NUMBER   jobs that have started or ended       waits for news
    GET /nodes?jobs=ID,ID    where jobs have just started          SlurmUser's token
    GET /allocations         the scheduler's live jobs             SlurmUser's token
    POST /open {"epoch"}     have the gate opened                  SlurmUser's token

A token is what slurmrestd takes, in the same header. 401 without a good one, 409 for another epoch than ours, 503 if
slurmctld does not do what is asked.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

from slurmctld_init import allocations, token
from slurmctld_init.commands import CommandError, Run
from slurmctld_init.gate import Gate
from slurmctld_init.hints import Hints
from slurmctld_init.jobs import Jobs
from slurmctld_init.server import Answer, Request, Route
from slurmctld_init.status import Status

LONGEST = 20
"""Digits of a number; Python refuses those of thousands."""
TOKEN = "x-slurm-user-token"  # noqa: S105 - the name of a header


class Answers:
    """`key` is the file of the key that signs tokens; `run` runs one of Slurm's commands."""

    def __init__(self, status: Status, hints: Hints, jobs: Jobs, gate: Gate, *, run: Run, key: Path) -> None:
        self.status, self.hints, self.jobs, self.gate = status, hints, jobs, gate
        self._run, self._key = run, key

    @property
    def routes(self) -> Mapping[str, Route]:
        """What `Server` answers by."""
        return {
            "GET /": self._status,
            "GET /hints": self._hints,
            "GET /jobs": self._jobs,
            "GET /nodes": self._nodes,
            "GET /allocations": self._allocations,
            "POST /open": self._open,
        }

    async def _status(self, _: Request) -> Answer:
        return HTTPStatus.OK, self._told()

    async def _hints(self, request: Request) -> Answer:
        return HTTPStatus.OK, await self.hints.after(_number(request.query))

    async def _jobs(self, request: Request) -> Answer:
        news = await self.jobs.after(_number(request.query))
        return HTTPStatus.OK, news | {"epoch": self.status.epoch}

    async def _nodes(self, request: Request) -> Answer:
        if not self._trusted(request):  # a job that is not known has the init doubt all of its log
            return HTTPStatus.UNAUTHORIZED, None
        found = await self.jobs.nodes(_numbers(request.query))
        return HTTPStatus.OK, {"epoch": self.status.epoch, "nodes": found}

    async def _allocations(self, request: Request) -> Answer:
        if not self._trusted(request):
            return HTTPStatus.UNAUTHORIZED, None
        epoch = self.status.epoch
        try:
            jobs = await allocations.allocations(self._run)
        except CommandError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
        if not epoch or epoch != self.status.epoch:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "slurmctld is starting"}
        return HTTPStatus.OK, {"epoch": epoch, "jobs": jobs}

    async def _open(self, request: Request) -> Answer:
        if not self._trusted(request):
            return HTTPStatus.UNAUTHORIZED, None
        try:
            epoch = json.loads(request.body)["epoch"]
        except (ValueError, TypeError, KeyError):
            return HTTPStatus.BAD_REQUEST, {"error": 'a body is wanted: {"epoch": "..."}'}
        if not self.status.epoch or epoch != self.status.epoch:
            return HTTPStatus.CONFLICT, self._told()
        try:
            await self.gate.open()
        except CommandError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
        return HTTPStatus.OK, self._told()

    def _told(self) -> dict[str, Any]:
        return asdict(self.status) | {"gate": self.gate.state}

    def _trusted(self, request: Request) -> bool:
        try:
            key = self._key.read_bytes()
        except OSError:
            return False
        return token.valid(request.headers.get(TOKEN, ""), key, time.time())


def _number(query: str) -> int:
    """Return the number of `after=NUMBER`; 0, which nobody has, for anything else."""
    return next(iter(_numbers(query, "after")), 0)


def _numbers(query: str, of: str = "jobs") -> list[int]:
    """Return the numbers of `jobs=NUMBER,NUMBER`; none of anything else."""
    name, _, numbers = query.partition("=")
    words = numbers.split(",") if name == of else []
    return [int(word) for word in words if word.isdecimal() and word.isascii() and len(word) < LONGEST]
