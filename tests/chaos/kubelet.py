"""What kubelets would be to the pods of the load: a bound pod runs a little later, and one that is to go is gone later.

It looks at what there is, again and again, so it goes on after each death of the API server. Whatever ends a pod is
written down before it is sent.
"""

import asyncio
import contextlib
import random
import time

from chaos.history import Deed, History
from chaos.recorder import Pod, Watch
from kurm.kube.errors import KubeError
from kurm.kube.resources import PODS, Key
from kurm.kube.session import Patch, Session

EVERY = 0.1
"""Seconds between looks."""
STARTS, STOPS = (0.05, 0.8), (0.05, 2.5)
"""Seconds until a bound pod runs, and until one that is to go is gone: between these."""
TRUE = "True"


class Kubelet:
    """All nodes' kubelets. `ends`: UIDs of pods whose containers are to end by themselves."""

    def __init__(self, session: Session, watch: Watch, history: History, dice: random.Random) -> None:
        self.session, self.watch, self.history, self.dice = session, watch, history, dice
        self.ends: set[str] = set()
        self._due: dict[tuple[str, str], float] = {}
        """By UID and what is to be done: when."""
        self._busy: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look at all pods, and do what is due; never ends, cancel it."""
        while True:
            now = time.monotonic()
            for pod in self.watch.pods:
                what = self._wanted(pod) if self._hears(pod) else ""
                key = (pod.metadata.uid, what)
                if (
                    what
                    and self._hears(pod)
                    and now >= self._due.setdefault(key, now + self._delay(what))
                    and key not in self._busy
                ):
                    self._busy.add(key)
                    task = asyncio.create_task(self._do(pod, what, key))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(EVERY)

    def _hears(self, pod: Pod) -> bool:
        """Whether anybody hears of the pod's node: a kubelet that nobody hears of says nothing of its pods."""
        node = self.watch.nodes.get(Key("", pod.spec.node_name))
        return node is not None and any(one.type == "Ready" and one.status == TRUE for one in node.status.conditions)

    def _wanted(self, pod: Pod) -> str:
        if not pod.spec.node_name or pod.status.phase in {"Succeeded", "Failed"}:
            return "gone" if pod.spec.node_name and pod.metadata.deletion_timestamp else ""
        if pod.metadata.deletion_timestamp:
            return "gone"
        if pod.status.phase != "Running":
            return "run"
        return "end" if pod.metadata.uid in self.ends else ""

    def _delay(self, what: str) -> float:
        return {"gone": self.dice.uniform(*STOPS), "run": self.dice.uniform(*STARTS)}.get(what, 0.0)

    async def _do(self, pod: Pod, what: str, key: tuple[str, str]) -> None:
        uid = pod.metadata.uid
        if what in {"gone", "end"}:
            self.history.add(Deed(at=self.history.clock.of(time.monotonic()), kind=what, subject=uid))
        with contextlib.suppress(KubeError):
            if what == "gone":
                await self.session.delete(PODS, pod.key, uid=uid, grace=0, deadline=3.0)
            else:
                conditions = [{"type": kind, "status": TRUE} for kind in ("PodScheduled", "Initialized", "Ready")]
                status = {"phase": "Running" if what == "run" else "Succeeded", "conditions": conditions}
                body = {"metadata": {"uid": uid}, "status": status}
                await self.session.patch(PODS, pod.key, body, kind=Patch.STRATEGIC, subresource="status", deadline=3.0)
        self._due[key] = time.monotonic() + 0.5
        self._busy.discard(key)
