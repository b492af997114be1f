"""A slurmd whose record Slurm has lost comes back, whatever is lost or cut off in between."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kurm.domain.agreement import (
    Create,
    Delete,
    Drain,
    Instruction,
    Mark,
    Recall,
    Register,
    Remember,
    Retract,
    Undrain,
    decide,
)
from kurm.domain.causes import Cause
from kurm.domain.noderecord import NodeRecord
from kurm.domain.world import Claim, Pod, Record, World, mark

FEATURES = ("nodeset:workers",)
WANTED = NodeRecord(cpus=4, real_memory=1000, gres=(), features=FEATURES, weight=1)
CLAIM = Claim("uid-1", WANTED)
CORDONED = replace(CLAIM, causes=(Cause("cordoned", "cordoned"),))
HERE = "10.0.0.7"
POD = Pod("pod-1", ready=True, address=HERE, told=True, protected=True)
MADE = Record(extra=mark("uid-1"), features=FEATURES)
UP = replace(MADE, registered=True, attached=True, address=HERE)
VACANT = replace(MADE, flags=("POWERED_DOWN",), address="n1")
FUTURE = replace(MADE, flags=("FUTURE",), address=HERE)
BY_CORDON = replace(VACANT, draining=True, reason="kurm: cordoned", comment="[kurm: drained=cordoned]")


@pytest.mark.parametrize(
    ("claim", "pod", "record", "expected"),
    [
        pytest.param(CLAIM, POD, None, [Create("n1", HERE)], id="its slurmd runs: it had a record"),
        pytest.param(CLAIM, replace(POD, ready=False), None, [Create("n1")], id="slurmd has not started: it will come"),
        pytest.param(CLAIM, replace(POD, terminating=True), None, [Create("n1")], id="slurmd is about to end"),
        pytest.param(CLAIM, None, None, [Create("n1")], id="no slurmd yet"),
        pytest.param(CLAIM, POD, FUTURE, [Register("n1")], id="made, and slurmd's address is known"),
        pytest.param(CLAIM, replace(POD, proven=True), FUTURE, [Retract("n1")], id="its pod may still be evicted"),
        pytest.param(CLAIM, replace(POD, proven=True), None, [Retract("n1")], id="nor is one made before that"),
        pytest.param(CORDONED, POD, FUTURE, [Register("n1")], id="whatever else is to be done comes after that"),
        pytest.param(
            CLAIM,
            POD,
            replace(FUTURE, address="10.0.0.1"),
            [Mark("n1", "uid-1", address=HERE)],
            id="it has another address by now",
        ),
        pytest.param(CLAIM, None, FUTURE, [Delete("n1")], id="slurmd has gone, and another could not see this record"),
        pytest.param(CLAIM, POD, VACANT, [Recall("n1")], id="the record waits for a slurmd that does not come"),
        pytest.param(
            CLAIM, POD, replace(VACANT, flags=("POWERING_UP",)), [Recall("n1")], id="a job was given to it, and ended"
        ),
        pytest.param(CLAIM, POD, replace(VACANT, busy=True), [], id="a job waits there, too"),
        pytest.param(CLAIM, replace(POD, told=False), VACANT, [], id="a new pod: its slurmd is about to register"),
        pytest.param(CLAIM, replace(POD, ready=False), VACANT, [], id="slurmd has not started"),
        pytest.param(CLAIM, POD, replace(UP, flags=("POWERED_DOWN",)), [], id="an administrator has powered it down"),
        pytest.param(CLAIM, POD, replace(MADE, address=HERE), [], id="slurmctld was restarted, and asks by itself"),
        pytest.param(
            CORDONED,
            POD,
            BY_CORDON,
            [Recall("n1", "")],
            id="our drain goes with the record's flags, and is made anew after that",
        ),
        pytest.param(
            CLAIM, POD, replace(VACANT, draining=True, reason="fan is loud"), [], id="an administrator's drain stays"
        ),
    ],
)
def test_what_is_done_about_a_slurmd_that_runs(
    claim: Claim, pod: Pod | None, record: Record | None, expected: list[Instruction]
) -> None:
    """One node in every state that matters."""
    assert expected == decide(World({"n1": claim}, {"n1": pod} if pod else {}, {"n1": record} if record else {}))


class Returning(RuleBasedStateMachine):
    """slurmctld and slurmd as they were seen to behave; we act only now and then, and may be cut off in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.cordoned = False
        self.pod: Pod | None = POD
        self.record: Record | None = UP

    def world(self) -> World:
        """Return both sides as they are."""
        claim = CORDONED if self.cordoned else CLAIM
        return World({"n1": claim}, {"n1": self.pod} if self.pod else {}, {"n1": self.record} if self.record else {})

    @rule()
    def cordon(self) -> None:
        """Somebody cordons the node, or uncordons it."""
        self.cordoned = not self.cordoned

    @rule()
    def lost(self) -> None:
        """Slurm has lost its state, or an administrator has deleted the record."""
        self.record = None

    @rule()
    def made_by_somebody_else(self) -> None:
        """Another syncer, a moment ago, that had not seen the pod."""
        self.record = self.record or replace(VACANT, extra="")

    @precondition(lambda self: self.record is not None and not self.record.future)
    @rule()
    def slurmctld_restarts(self) -> None:
        """It asks the slurmds that it knows of."""
        assert self.record is not None
        known = self.record.attached and self.pod is not None and self.pod.ready
        self.record = replace(self.record, attached=known, registered=known)

    @rule(what=st.sampled_from(("gone", "stumbles", "recovers", "another")))
    def pod_changes(self, what: str) -> None:
        """The slurmd ends, is not ready for a while, or starts with another address: then it looks for its record."""
        if what == "gone":
            self.pod = None
        elif what == "another":
            self.pod = Pod("pod-2", address="10.0.0.9", protected=True, told=self.pod is not None)
        elif self.pod is not None:
            self.pod = replace(self.pod, ready=what == "recovers" and self.pod.uid == POD.uid)
        self.slurmd_starts()

    def slurmd_starts(self) -> None:
        """One that has just been started registers as soon as there is a record that it can see."""
        starts = self.pod is not None and self.pod.uid == "pod-2"
        if self.pod is not None and starts and self.record is not None and not self.record.future:
            self.pod = replace(self.pod, ready=True, uid=POD.uid, told=True)
            self.registers()

    def registers(self) -> None:
        """Slurm takes flags and address from it."""
        assert self.record is not None
        assert self.pod is not None
        self.record = replace(self.record, registered=True, attached=True, flags=(), address=self.pod.address)

    @rule(count=st.integers(1, 2))
    def act(self, count: int) -> None:
        """We do some of what is to be done."""
        for instruction in decide(self.world())[:count]:
            self.apply(instruction)

    def apply(self, instruction: Instruction) -> None:
        """Do what Slurm would do; what must never be asked for fails the test."""
        if isinstance(instruction, Create):
            flags = ("FUTURE",) if instruction.slurmd else ("POWERED_DOWN",)
            self.record = replace(VACANT, flags=flags, address=instruction.slurmd or "n1")
            return self.slurmd_starts()
        assert self.record is not None
        changes: dict[str, Any] = {}
        match instruction:
            case Mark(uid=uid, address=address):
                changes = {"extra": mark(uid), "address": address or self.record.address}
            case Drain(reason=reason):
                changes = {"draining": True, "reason": reason}
            case Undrain():
                changes = {"draining": False, "reason": ""}
            case Recall():
                assert self.record.vacant, "a record was taken from its slurmd"
                changes = {"flags": ("FUTURE",), "draining": False, "reason": ""}
            case Register():
                assert self.record.future
                assert self.pod is not None
                assert self.record.address == self.pod.address
                changes = {"flags": ()}
            case Remember():
                pass
            case Delete():
                assert self.record.future, "a record that can be seen was deleted"
                self.record = None
                return None
            case _:
                raise AssertionError(instruction)
        comment = getattr(instruction, "comment", None)
        self.record = replace(self.record, **changes, comment=self.record.comment if comment is None else comment)
        if isinstance(instruction, Register):
            self.registers()
        return None

    @invariant()
    def quiet_brings_it_back(self) -> None:
        """Left alone, a slurmd that runs is registered with its record, which is drained if and only if cordoned."""
        kept = (self.pod, self.record)
        if self.pod is None:
            self.pod = Pod("pod-2", address="10.0.0.9", protected=True)
        if self.pod.uid == POD.uid:
            self.pod = replace(self.pod, ready=True)
        self.slurmd_starts()
        for _ in range(8):
            for instruction in decide(self.world()):
                self.apply(instruction)
        assert decide(self.world()) == []
        assert self.record is not None
        assert (self.record.flags, self.record.draining) == ((), self.cordoned)
        self.pod, self.record = kept


TestReturning = Returning.TestCase
