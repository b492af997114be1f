"""Which nodes slurmctld's log speaks of: whoever follows it need not ask slurmctld for all nodes again and again.

A hint says "look at this node again" and nothing else: only names leave, no other word of the log. Lines about jobs are
none, or each start of a job would be one.
"""

import re
from typing import Any

from slurmctld_init.ring import Ring

LONGEST = 256
"""Letters of a host list. One that is longer counts as lost: whoever follows looks at all nodes."""
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
    """What the log says of nodes."""

    def __init__(self) -> None:
        self.ring: Ring[str] = Ring(GATHER)

    def hear(self, line: str) -> None:
        """Take a line of the log, without its time."""
        found = hosts(line)
        if _ANOTHER_SET.match(line) or len(found) > LONGEST:
            self.ring.lose()
        elif found:
            self.ring.add(found)

    async def after(self, number: int) -> dict[str, Any]:
        """Return what came after a number (`next` of an earlier answer), waiting for it if nothing has.

        `lost`: some of it is not known any more, or never was.
        """
        nodes, lost = await self.ring.after(number)
        return {"next": self.ring.next, "nodes": list(dict.fromkeys(nodes)), "lost": lost}
