"""Which nodes slurmctld's log speaks of: whoever follows it need not ask slurmctld for all nodes again and again.

A hint says "look at this node again" and nothing else: only names leave, no other word of the log. Lines about jobs are
none, or each start of a job would be one.
"""

import asyncio
import re
import time
from collections import deque
from typing import Any

RING = 4096
"""Hints that are kept for whoever asks late."""
LONGEST = 256
"""Letters of a host list. One that is longer counts as lost: whoever follows looks at all nodes."""
WAIT = 20.0
"""Seconds until an answer without a hint."""
GATHER = 0.02
"""Seconds for which more hints are waited for: a change of a thousand nodes is a thousand lines."""
_LINE = re.compile(
    # slurmctld 26.05, at "info" and above; the words before are the function's, or a severity.
    r"(?:error: )?(?:[\w/]+: )?(?:Setting )?[Nn]odes? (?P<hosts>[\w.,\[\]-]+) "
    r"(?:(?:state|reason|weight) (?:set )?to\b|now responding|returned to service|(?:unexpectedly )?rebooted\b"
    r"|not responding|not resumed|registered with)"
)

_ANOTHER_SET = re.compile(r"select/\w+: select_p_reconfigure: ")
"""What slurmctld says when records were made or deleted, and by nothing else of a deletion. It names none of them."""


def hosts(line: str) -> str:
    """Return the node, or the host list, of which a line of the log (without its time) says that it has changed."""
    found = _LINE.match(line)
    return found["hosts"] if found else ""


class Hints:
    """A ring of the last ones, numbered. Numbers begin where no earlier ring can have come to: at the time in us."""

    def __init__(self) -> None:
        self.next = time.time_ns() // 1000
        self._ring: deque[str] = deque(maxlen=RING)
        self._news = asyncio.Event()

    def hear(self, line: str) -> None:
        """Take a line of the log, without its time."""
        found, another_set = hosts(line), bool(_ANOTHER_SET.match(line))
        if not found and not another_set:
            return
        self.next += 1
        if another_set or len(found) > LONGEST:
            self._ring.clear()
        else:
            self._ring.append(found)
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, number: int) -> dict[str, Any]:
        """Return what came after a number (`next` of an earlier answer), waiting for it if nothing has.

        `lost`: some of it is not known any more, or never was.
        """
        if number == self.next:
            try:
                async with asyncio.timeout(WAIT):
                    await self._news.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(GATHER)
        oldest = self.next - len(self._ring)
        lost = not oldest <= number <= self.next
        nodes = list(self._ring) if lost else list(self._ring)[number - oldest :]
        return {"next": self.next, "nodes": list(dict.fromkeys(nodes)), "lost": lost}
