"""A fake slurmrestd that knows nodes: enough to count what is asked of it on virtual time."""

import asyncio
import re
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kurm.slurm.hostlist import expand

META = {"slurm": {"release": "26.05.5", "cluster": "fake"}}


@dataclass
class FakeSlurm:
    """`nodes` by name, as slurmrestd shows them. `changed` is when anything was last changed, by slurmctld's clock."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed: int = 100
    clock: int = 100
    away: bool = False
    slow: float = 0.0
    """Seconds until a list or a node is answered, with what is true when it is asked for."""
    asked: list[str] = field(default_factory=list)
    """Paths and what of their queries is not always the same."""
    port: int = 0

    def put(self, name: str, *states: str, **fields: Any) -> None:
        """Make a node what is given; somebody else did it."""
        self.clock += 1
        self.changed = self.clock
        self.nodes[name] = {"name": name, "state": list(states or ("IDLE", "CLOUD"))} | fields

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeSlurm"]:
        """Serve on a free port of the loopback."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                sent = await reader.readexactly(int(length[1])) if length else b""
                route = head.split(" ", 2)[1].partition("v0.0.45/")[2]
                self.asked.append(re.sub(r"flags=\w+&?", "", route).rstrip("?&"))
                status, body = self._answer(route) if not sent else self._change(msgspec.json.decode(sent))
                await asyncio.sleep(self.slow if "node" in route and not sent else 0.0)
                content = b"" if status == "304 NOT MODIFIED" else msgspec.json.encode(body | {"meta": META})
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _change(self, sent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Do to nodes what a POST to `nodes/` says: the state is one word more, all else is what they have."""
        for name in expand(",".join(sent["name"])):
            node = self.nodes[name] | {key: value for key, value in sent.items() if key != "name"}
            self.put(name, *self.nodes[name]["state"], *sent.get("state", ()))
            self.nodes[name] = node | self.nodes[name]
        return "200 OK", {}

    def _answer(self, route: str) -> tuple[str, dict[str, Any]]:
        path, _, query = route.partition("?")
        if path == "ping/":
            return "200 OK", {"pings": [{"hostname": "f", "responding": not self.away, "primary": True}]}
        if self.away:
            return "502 BAD GATEWAY", {
                "errors": [{"error_number": 1800, "error": "Unable to contact slurm controller"}]
            }
        if path == "nodes/":
            since = int(urllib.parse.parse_qs(query).get("update_time", ["0"])[0])
            if since and since > self.changed:
                return "304 NOT MODIFIED", {}
            self.clock += 1
            stamp = {"set": True, "infinite": False, "number": self.clock}
            return "200 OK", {"nodes": list(self.nodes.values()), "last_update": stamp}
        name = path.removeprefix("node/")
        if name in self.nodes:
            return "200 OK", {"nodes": [self.nodes[name]]}
        return "200 OK", {"errors": [{"error_number": 0, "description": "no such node"}], "nodes": []}


@dataclass
class Token:
    """Any token: nobody here checks it."""

    text: str = "t"

    def __call__(self) -> str:
        """Return it."""
        return self.text

    def renew(self) -> None:
        """Nobody refuses it."""
