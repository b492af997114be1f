"""Who leads: one holder of a coordination.k8s.io Lease at a time, as client-go's leader election keeps it.

Nobody's wall clock is believed. A candidate looks whether the Lease changes, and takes it over only when it has not
done so for `duration` on the candidate's own clock. The holder counts `renew_within` from the moment *before* it sent
its last good renewal, and no longer leads when that is over: so it knows first, by `duration - renew_within` (5 s).

That is a promise between clocks that run equally fast and a process that runs. A process that was stopped for longer
than that (a frozen virtual machine) cannot be told in time: `leads` is computed from the clock whenever it is asked, so
ask it before a write that may not be made twice, and let every write carry its preconditions.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import structlog

from kurm.kube.backoff import TICK, Backoff
from kurm.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kurm.kube.resources import LEASES, Key, Lease, OwnerReference, micro_time
from kurm.kube.session import Session

log = structlog.get_logger("kurm.kube")


class LeadershipLost(Exception):  # noqa: N818 - it is a fact
    """The Lease could not be renewed in time, or somebody else holds it. Nothing more may be written."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Times in seconds; the defaults are client-go's for controllers. ValueError unless they leave a margin."""

    duration: float = 15.0  # others wait this long after the last renewal that they saw
    renew_within: float = 10.0  # the holder gives up this long after its last renewal
    retry: float = 2.0  # between attempts, to acquire or to renew; each attempt may take as long again

    def __post_init__(self) -> None:
        if not self.duration > self.renew_within > 2 * self.retry > 0:
            raise ValueError(f"{self}: must be duration > renew_within > 2 * retry > 0")


class Leadership:
    """One candidate for one Lease. `identity` must be its own (a pod's name and UID)."""

    def __init__(
        self,
        session: Session,
        lease: Key,
        identity: str,
        terms: Terms | None = None,
        *,
        owner: Callable[[], OwnerReference | None] = lambda: None,
    ) -> None:
        """`owner` is asked when the Lease is made: the object with which it is to go."""
        self.session = session
        self.owner = owner
        self.key = lease
        self.identity = identity
        self.terms = terms or Terms()
        self._renewed_at: float | None = None  # on our clock, before the last good renewal was sent
        self._seen: Lease | None = None
        self._seen_at = 0.0
        # Candidates must not come together again and again: each wait is between 1 and 1.2 times `retry`.
        self._pause = Backoff(first=1.2 * self.terms.retry, most=1.2 * self.terms.retry, jitter=1 / 6)

    @property
    def leads(self) -> bool:
        """Whether we lead at this very moment."""
        return self._renewed_at is not None and self._now() < self._renewed_at + self.terms.renew_within

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read; "" if nobody did."""
        return self._seen.spec.holder_identity if self._seen else ""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to lead, then do `work` while we do; give the Lease back when it ends, or when we are cancelled.

        Raises LeadershipLost when the Lease is lost first: `work` was cancelled at once, and has ended. Restart the
        process then: nothing that was read while leading may be trusted.
        """
        await self._acquire()
        log.info("leads", lease=str(self.key), identity=self.identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not working.done():
                working.cancel()
            # Renewed until the work has truly ended: its last writes may still be under way.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
            lost = renewing.done()
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
            if not lost:
                await self._release()
            self._renewed_at = None
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError  # it came while the work was put down, and must not be taken for done
        if lost:
            raise LeadershipLost(f"lease {self.key}: not renewed in {self.terms.renew_within:g} s, or taken by another")
        working.result()

    async def _acquire(self) -> None:
        while True:
            if await self._attempt():
                return
            await asyncio.sleep(self._pause.delay(1))

    async def _renew(self) -> None:
        """Renew, and return when that has failed for too long or somebody else holds the Lease."""
        while True:
            await self._sleep_while_leading(self._pause.delay(1))
            if not self.leads:
                log.warning("lease not renewed in time", lease=str(self.key), identity=self.identity)
                return
            if not await self._attempt() and self.holder != self.identity:
                log.warning("lease taken by another", lease=str(self.key), holder=self.holder)
                return

    async def _sleep_while_leading(self, seconds: float) -> None:
        left = (self._renewed_at or 0.0) + self.terms.renew_within - self._now()
        await asyncio.sleep(max(TICK, min(seconds, left)))

    async def _attempt(self) -> bool:
        """Acquire or renew once. Return whether the server has said that we hold it."""
        before = self._now()
        deadline = self.terms.retry
        if self._renewed_at is not None:
            deadline = min(deadline, max(self._renewed_at + self.terms.renew_within - before, 0.01))
        try:
            async with asyncio.timeout(deadline):
                taken = await self._write()
        except (KubeError, TimeoutError) as error:
            log.debug("lease attempt failed", lease=str(self.key), why=str(error) or "too slow")
            return False
        if taken is None:
            return False
        self._observe(taken)
        self._renewed_at = before
        return True

    async def _write(self) -> Lease | None:
        if self.leads and self._seen is not None and self.holder == self.identity:
            with contextlib.suppress(Conflict, NotFound):  # the usual case: one request a renewal
                return await self.session.patch(LEASES, self.key, self._body(self._seen))
        try:
            lease = await self.session.get(LEASES, self.key)
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                return await self.session.create(LEASES, self._body(None))
            return None
        self._observe(lease)
        if self._may_take(lease):
            with contextlib.suppress(Conflict):
                return await self.session.patch(LEASES, self.key, self._body(lease))
        return None

    def _may_take(self, lease: Lease) -> bool:
        if lease.spec.holder_identity == self.identity:
            return True
        if self._renewed_at is not None:
            return False  # it was ours and is no longer: never a quiet return to it
        return not lease.spec.holder_identity or self._expired(lease)

    def _body(self, lease: Lease | None) -> dict[str, object]:
        # A merge patch with the version that was read: whoever else wrote in between makes it a Conflict, and fields
        # that we do not know are kept.
        now = micro_time(datetime.now(UTC))
        spec: dict[str, object] = {"holderIdentity": self.identity, "renewTime": now}
        spec["leaseDurationSeconds"] = round(self.terms.duration)
        if lease is None or lease.spec.holder_identity != self.identity:
            spec |= {"acquireTime": now, "leaseTransitions": lease.spec.lease_transitions + 1 if lease else 0}
        metadata = {"name": self.key.name, "namespace": self.key.namespace}
        if lease is not None:
            return {"metadata": metadata | {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        owner = self.owner()
        references = {"ownerReferences": [msgspec.to_builtins(owner)]} if owner else {}
        return {"metadata": metadata | references, "spec": spec}

    def _observe(self, lease: Lease) -> None:
        # The spec alone counts: somebody's label on the Lease is no sign of life of its holder.
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._now()
        self._seen = lease

    def _expired(self, lease: Lease) -> bool:
        # The holder's own duration counts: it may have been configured with a longer one.
        patience = max(self.terms.duration, float(lease.spec.lease_duration_seconds))
        return self._now() >= self._seen_at + patience

    async def _release(self) -> None:
        """Give the Lease back, so that the next holder need not wait. Failure only costs that wait."""
        lease, self._renewed_at = self._seen, None
        if lease is None:
            return
        version = {"resourceVersion": lease.metadata.resource_version}
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(datetime.now(UTC))}
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self.terms.retry):
                await self.session.patch(LEASES, self.key, {"metadata": version, "spec": spec})
            log.info("lease given back", lease=str(self.key), identity=self.identity)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
