"""Kubernetes and Slurm come to agree about the compute nodes, whatever happens in between."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kurm.domain.agreement import (
    ANOTHER_NODE,
    GONE_FROM_POOL,
    Create,
    Delete,
    Describe,
    Drain,
    Instruction,
    Mark,
    Place,
    Remember,
    Undrain,
    decide,
)
from kurm.domain.noderecord import NodeRecord
from kurm.domain.report import say
from kurm.domain.world import Claim, Pod, Record, World, mark

FEATURES = ("nodeset:workers", "ssd")
WANTED = NodeRecord(cpus=4, real_memory=1000, gres=(), features=FEATURES, weight=1)
CLAIM = Claim("uid-1", WANTED)
RACK_1 = "default:root:rack1"
PLACED = Claim("uid-1", replace(WANTED, topology=RACK_1))
OTHER = Claim("uid-2", WANTED)
UNFIT = Claim("uid-1", None, unfit="memory: nothing is left of it beyond the reserve")
POD = Pod("pod-1", protected=True)
RELEASED = replace(POD, release="scaling in")
UNMARKED = Record(features=FEATURES)
IDLE = Record(extra=mark("uid-1"), registered=True, features=FEATURES)
FOR_RELEASE = "[kurm: drained=released]"
BY_US = replace(IDLE, draining=True, reason="kurm: scaling in", comment=FOR_RELEASE)
BY_ADMIN = replace(IDLE, draining=True, reason="fan is loud")


@pytest.mark.parametrize(
    ("claim", "pod", "record", "expected"),
    [
        pytest.param(CLAIM, POD, None, [Create("n1")], id="a claimed node gets a record"),
        pytest.param(CLAIM, RELEASED, None, [Create("n1")], id="without a record nobody can say that nothing runs"),
        pytest.param(UNFIT, POD, None, [], id="a claimed node of which no record can be made"),
        pytest.param(CLAIM, POD, UNMARKED, [Mark("n1", "uid-1")], id="a record that was made and not marked is marked"),
        pytest.param(
            None, None, UNMARKED, [Drain("n1", GONE_FROM_POOL, "unclaimed")], id="made, and not marked in time"
        ),
        pytest.param(CLAIM, POD, Record(), [], id="a claimed node of whose name somebody has made a record"),
        pytest.param(CLAIM, POD, replace(IDLE, features=FEATURES[:1]), [Describe("n1")], id="a feature was added"),
        pytest.param(CLAIM, POD, replace(IDLE, weight=7), [Describe("n1")], id="another weight"),
        pytest.param(CLAIM, POD, replace(IDLE, features=FEATURES[::-1]), [], id="features are a set"),
        pytest.param(UNFIT, POD, IDLE, [], id="the size of a record stays"),
        pytest.param(PLACED, POD, IDLE, [Place("n1", RACK_1)], id="a node is given its place"),
        pytest.param(PLACED, POD, replace(IDLE, topology="default:root:rack2"), [Place("n1", RACK_1)], id="and moved"),
        pytest.param(PLACED, POD, replace(IDLE, topology=RACK_1), [], id="it is in its place"),
        pytest.param(CLAIM, POD, replace(IDLE, topology=RACK_1), [Place("n1", "")], id="there is no topology any more"),
        pytest.param(UNFIT, POD, replace(IDLE, topology=RACK_1), [], id="nobody knows its place: it stays"),
        pytest.param(
            None,
            None,
            replace(BY_US, busy=True, topology=RACK_1),
            [Place("n1", "")],
            id="the place goes before the job ends: no configuration without that block would be taken",
        ),
        pytest.param(
            OTHER, POD, replace(BY_US, busy=True, topology=RACK_1), [Place("n1", "")], id="as with a node replaced"
        ),
        pytest.param(CLAIM, POD, IDLE, [], id="both sides agree"),
        pytest.param(
            CLAIM,
            RELEASED,
            IDLE,
            [Drain("n1", "kurm: scaling in", "released", FOR_RELEASE)],
            id="a pod that shall go: drain",
        ),
        pytest.param(CLAIM, RELEASED, BY_US, [], id="drained already"),
        pytest.param(CLAIM, RELEASED, BY_ADMIN, [], id="an administrator drained first, and keeps the drain"),
        pytest.param(CLAIM, POD, BY_US, [Undrain("n1", "")], id="the cause is gone, our drain goes"),
        pytest.param(CLAIM, POD, BY_ADMIN, [], id="an administrator's drain stays"),
        pytest.param(None, None, BY_US, [Delete("n1")], id="nobody claims it and nothing runs"),
        pytest.param(None, POD, BY_US, [], id="its pod is still there"),
        pytest.param(None, None, replace(BY_US, busy=True), [], id="a job still runs"),
        pytest.param(None, None, IDLE, [Drain("n1", GONE_FROM_POOL, "unclaimed")], id="drained before it is deleted"),
        pytest.param(None, None, Record(extra="mine", draining=True), [], id="a record that is not ours is left alone"),
        pytest.param(None, None, Record(), [], id="a record without a mark is left alone"),
        pytest.param(OTHER, POD, IDLE, [Drain("n1", ANOTHER_NODE, "replaced")], id="node replaced"),
        pytest.param(OTHER, POD, replace(BY_US, busy=True), [], id="node replaced, its jobs not yet ended"),
        pytest.param(OTHER, None, BY_US, [Delete("n1")], id="node replaced, its record is made anew"),
        pytest.param(
            OTHER, POD, BY_US, [Mark("n1", "uid-2", "")], id="node replaced, and a slurmd has its record already"
        ),
    ],
)
def test_what_is_done_about_a_node(
    claim: Claim | None, pod: Pod | None, record: Record | None, expected: list[Instruction]
) -> None:
    """One node in every state that matters."""
    assert decide(world(claim, pod, record)) == expected


def world(claim: Claim | None, pod: Pod | None, record: Record | None) -> World:
    """Return a world of one node."""
    sides = ({"n1": side} if side else {} for side in (claim, pod, record))
    return World(*sides)  # type: ignore[arg-type]


@given(st.sampled_from(("claims", "pods", "records")))
def test_a_side_that_cannot_be_read_stops_everything(side: str) -> None:
    """Nobody is drained or deleted because a list failed."""
    everything = world(None, None, BY_US)
    assert decide(everything) != []
    assert decide(replace(everything, **{side: None})) == []


def test_a_pod_is_told_what_slurm_says() -> None:
    """The conditions of a pod follow its record; it may go only when it is known to be drained."""
    assert say(CLAIM, IDLE).ready
    assert say(CLAIM, BY_US, RELEASED).drained
    assert not say(CLAIM, replace(BY_US, busy=True), RELEASED).drained
    assert say(CLAIM, BY_US, POD).reason == "Resuming"
    assert not say(CLAIM, BY_US, POD).drained
    assert not say(CLAIM, None).drained
    assert not say(OTHER, BY_US).drained
    assert say(UNFIT, None).message == UNFIT.unfit
    assert say(replace(CLAIM, outdated="its record keeps gpu:8"), IDLE).message == "its record keeps gpu:8"


NODES = ("n1", "n2")


def remembering(record: Record, comment: str | None, **changes: Any) -> Record:
    """Return a record with changes, and with another comment if one is given."""
    return replace(record, comment=record.comment if comment is None else comment, **changes)


class Agreement(RuleBasedStateMachine):
    """People and machines do what they want; we act only now and then, and may be cut off in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Pod] = {}
        self.records: dict[str, Record] = {"login-x": Record(extra="somebody's", draining=True, reason="kurm: no")}
        self.jobs: set[str] = set()
        self.uids = 0

    def world(self) -> World:
        """Return both sides as they are."""
        records = {name: replace(record, busy=name in self.jobs) for name, record in self.records.items()}
        return World(dict(self.claims), dict(self.pods), records)

    @rule(node=st.sampled_from(NODES))
    def claim(self, node: str) -> None:
        """A NodeSet takes a node, and its pod comes."""
        if node not in self.claims:
            self.uids += 1
            self.claims[node] = Claim(f"uid-{self.uids}", WANTED)
            self.pods.setdefault(node, Pod(f"pod-{self.uids}", protected=True))

    @rule(node=st.sampled_from(NODES), back=st.booleans())
    def release(self, node: str, *, back: bool) -> None:
        """A NodeSet wants to be rid of a node, or thinks better of it."""
        if node in self.pods:
            self.pods[node] = replace(self.pods[node], release="" if back else "scaling in")

    @rule(node=st.sampled_from(NODES))
    def pod_goes(self, node: str) -> None:
        """The operator deletes a pod that is drained; then it gives up the claim."""
        record = self.world().records or {}
        if node not in self.pods or not self.pods[node].release:
            return
        if say(self.claims.get(node), record.get(node), self.pods[node]).drained:
            assert node not in self.jobs, "a pod with a job was deleted"
            del self.pods[node]
            self.claims.pop(node, None)

    @rule(node=st.sampled_from(NODES))
    def machine_dies(self, node: str) -> None:
        """A Kubernetes node is gone with its pod and its jobs."""
        self.claims.pop(node, None)
        self.pods.pop(node, None)
        self.jobs.discard(node)

    @rule(node=st.sampled_from(NODES), reason=st.sampled_from(("fan is loud", "")))
    def administrator(self, node: str, reason: str) -> None:
        """An administrator drains a node, or resumes one whoever drained it."""
        if node in self.records:
            self.records[node] = replace(self.records[node], draining=bool(reason), reason=reason)

    @rule(node=st.sampled_from(NODES), ends=st.booleans())
    def job(self, node: str, *, ends: bool) -> None:
        """A job starts where it may, or ends."""
        if ends:
            self.jobs.discard(node)
        elif node in self.records and not self.records[node].draining and node in self.pods:
            self.jobs.add(node)

    @precondition(lambda self: bool(decide(self.world())))
    @rule(count=st.integers(1, 3))
    def act(self, count: int) -> None:
        """We do some of what is to be done, and are cut off."""
        for instruction in decide(self.world())[:count]:
            self.apply(instruction)

    def apply(self, instruction: Instruction) -> None:
        """Do what Slurm would do; what must never be asked for fails the test."""
        node = instruction.node
        match instruction:
            case Create():
                assert node not in self.records
                self.records[node] = replace(UNMARKED, registered=True)
            case Mark(uid=uid, comment=comment):
                self.records[node] = remembering(self.records[node], comment, extra=mark(uid))
            case Describe():
                self.records[node] = replace(self.records[node], features=FEATURES, weight=1)
            case Drain(reason=reason, comment=comment):
                before = self.records[node]
                assert not before.draining or before.drained_by_us, "a foreign drain was overwritten"
                self.records[node] = remembering(before, comment, draining=True, reason=reason)
            case Undrain(comment=comment):
                assert self.records[node].drained_by_us, "a foreign drain was lifted"
                self.records[node] = remembering(self.records[node], comment, draining=False, reason="")
            case Remember(comment=comment):
                self.records[node] = replace(self.records[node], comment=comment)
            case Delete():
                assert node not in self.jobs, "a record with a job was deleted"
                assert node not in self.pods, "a record with a pod was deleted"
                del self.records[node]

    @invariant()
    def quiet_brings_agreement(self) -> None:
        """Left alone (jobs end), we come to an end after a few rounds, and both sides say the same."""
        kept = (dict(self.claims), dict(self.pods), dict(self.records), set(self.jobs))
        self.jobs.clear()
        for _ in range(8):
            for instruction in decide(self.world()):
                self.apply(instruction)
        assert decide(self.world()) == []
        for name, record in self.records.items():
            if name in self.claims:
                assert record.extra == mark(self.claims[name].uid)
            else:
                assert not record.ours or name in self.pods
        assert set(self.claims) <= set(self.records)
        self.claims, self.pods, self.records, self.jobs = kept


TestAgreement = Agreement.TestCase
