"""Whatever people and machines do to a node, and wherever we are cut off: whose a drain is stays as it was said."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kurm.domain.agreement import Create, Drain, Instruction, Mark, Remember, Undrain, decide
from kurm.domain.causes import RELEASED, Cause, Memory
from kurm.domain.world import Claim, Pod, Record, World, mark
from unit.domain.one_node import FAN, FEATURES, POD, UP, claim


class Ownership(RuleBasedStateMachine):
    """One node. People and machines do what they want; we act now and then, and may be cut off in the middle.

    Nothing is kept between two of our acts, so each act is a syncer that was just started.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node = {"cordoned": False, "ready": True, "deadlock": False}
        self.words = ""
        self.pod: Pod | None = POD
        self.record: Record | None = UP
        self.comment = ""
        """What an administrator has written into it."""
        self.admins = False
        """The drain that stands is an administrator's."""
        self.respected = ""
        """The cause that stood in our drain as it was resumed, as long as it stays."""
        self.resumed: set[str] = set()
        """Causes that stood, as far as we could see, when somebody resumed the node."""

    def causes(self) -> set[str]:
        """Return what stands against the node, as people see it."""
        found = {cause.key for cause in self.claim.causes}
        if self.pod is not None and self.pod.release:
            found.add(RELEASED)
        record = self.record
        known = record is not None and (record.attached or Memory.of(record.comment).drained_for == "pod")
        if known and (self.pod is None or self.pod.terminating):
            found.add("pod")
        return found

    @property
    def claim(self) -> Claim:
        """The Kubernetes node."""
        node = self.node
        return claim(cordoned=node["cordoned"], ready=node["ready"], deadlock=node["deadlock"], words=self.words)

    def world(self) -> World:
        """Return both sides as they are."""
        return World(
            {"n1": self.claim}, {"n1": self.pod} if self.pod else {}, {"n1": self.record} if self.record else {}
        )

    def happened(self) -> None:
        """Forget a resume with the cause that it was against."""
        if self.respected not in self.causes():
            self.respected = ""

    @rule(what=st.sampled_from(("cordoned", "cordoned", "ready", "deadlock")))
    def kubernetes_node(self, what: str) -> None:
        """A node is cordoned, uncordoned, not ready, ready, in trouble, out of it."""
        self.node[what] = not self.node[what]
        self.happened()

    @precondition(lambda self: self.pod is not None)
    @rule(what=st.sampled_from(("ready", "unready", "released", "kept", "terminating", "gone")))
    def pod_changes(self, what: str) -> None:
        """The operator and the kubelet do theirs."""
        assert self.pod is not None
        changes: dict[str, dict[str, Any]] = {
            "ready": {"ready": True},
            "unready": {"ready": False},
            "released": {"release": "scaling in"},
            "kept": {"release": ""},
            "terminating": {"terminating": True},
        }
        self.pod = replace(self.pod, **changes[what]) if what in changes else None
        if self.pod is not None and self.pod.ready and self.record is not None:
            self.record = replace(self.record, attached=True)
        self.happened()

    @precondition(lambda self: self.pod is None)
    @rule()
    def pod_comes(self) -> None:
        """The operator makes it anew."""
        self.pod = Pod("pod-2", protected=True)
        self.happened()

    @precondition(lambda self: self.record is not None)
    @rule()
    def administrator_drains(self) -> None:
        """Also over a drain of ours: it is the administrator's then."""
        assert self.record is not None
        self.record = replace(self.record, draining=True, reason=FAN)
        self.admins = True

    @precondition(lambda self: self.record is not None and self.record.draining)
    @rule()
    def administrator_resumes(self) -> None:
        """Whoever drained it."""
        assert self.record is not None
        held = Memory.of(self.record.comment).drained_for
        if self.record.drained_by_us:
            self.respected = held if held in self.causes() - {RELEASED} else ""
        self.resumed |= self.causes() | {held}
        self.record = replace(self.record, draining=False, reason="")
        self.admins = False

    @precondition(lambda self: self.record is not None)
    @rule(what=st.sampled_from(("explained", "commented", "restarted", "forgotten")))
    def seldom(self, what: str) -> None:
        """What is left to happen; one rule, so that the others have their turn."""
        assert self.record is not None
        if what == "explained":
            self.words = "disk errors"
        elif what == "commented":
            # The administrator wipes out what we have remembered: of a resume nothing is known any more.
            self.comment, self.respected = "inventory 7", ""
            self.record = replace(self.record, comment=self.comment)
        elif what == "restarted":
            # slurmctld has to hear of each slurmd anew.
            self.record = replace(self.record, attached=self.pod is not None and self.pod.ready)
            self.happened()
        else:
            # Its state directory is lost, with all drains.
            self.record, self.admins, self.comment, self.respected = None, False, "", ""

    @rule(cut_off=st.booleans())
    def act(self, *, cut_off: bool) -> None:
        """We do what is to be done, or are cut off after the first thing."""
        if cut_off:
            for instruction in decide(self.world())[:1]:
                self.apply(instruction)
        else:
            self.settle()

    def settle(self) -> None:
        """Do all of it; then we have seen each cause that is gone."""
        for _ in range(6):
            for instruction in decide(self.world()):
                self.apply(instruction)
        self.resumed &= self.causes()

    def apply(self, instruction: Instruction) -> None:
        """Do what Slurm would do; what must never be asked for fails the test."""
        if isinstance(instruction, Create):
            self.record = Record(features=FEATURES, registered=True)
            return
        assert self.record is not None
        changes: dict[str, Any] = {}
        match instruction:
            case Mark(uid=uid):
                changes = {"extra": mark(uid)}
            case Drain(reason=reason, cause=cause):
                assert not self.record.draining or self.record.drained_by_us, "a foreign drain was overwritten"
                assert not self.respected or cause != self.respected, "a resume was not respected"
                changes = {"draining": True, "reason": reason}
            case Undrain():
                assert self.record.drained_by_us, "a foreign drain was lifted"
                changes = {"draining": False, "reason": ""}
            case Remember():
                pass
            case _:
                raise AssertionError(instruction)
        comment = getattr(instruction, "comment", None)
        self.record = replace(self.record, **changes, comment=self.record.comment if comment is None else comment)

    @invariant()
    def an_administrators_words_stay(self) -> None:
        """The drain, its reason and the comment."""
        if self.record is None:
            return
        assert self.record.comment.startswith(self.comment)
        assert self.admins == (self.record.reason == FAN)
        assert not self.admins or self.record.draining

    @invariant()
    def quiet_brings_agreement(self) -> None:
        """Left alone (pods that shall stay become ready) we come to an end, and both sides say the same."""
        kept = (self.pod, self.record, set(self.resumed))
        if self.pod is not None and not self.pod.terminating:
            self.pod = replace(self.pod, ready=True)
        self.settle()
        assert decide(self.world()) == []
        assert self.record is not None
        if not self.admins:
            self.agreed(self.record)
        self.pod, self.record, self.resumed = kept

    def agreed(self, record: Record) -> None:
        """Drained by us for a cause that stands, or in service with no cause but what somebody has resumed against."""
        causes = self.causes()
        if record.draining:
            cause = Memory.of(record.comment).drained_for
            assert cause in causes
            assert cause != self.respected or not self.respected
            assert self.reason_of(cause) == record.reason or cause in {"not-ready", "condition/KernelDeadlock", "pod"}
        else:
            assert causes - {RELEASED} <= self.resumed
            assert RELEASED not in causes

    def reason_of(self, key: str) -> str:
        """Return the reason that a cause is to give."""
        known: dict[str, Cause] = {cause.key: cause for cause in self.claim.causes}
        return known[key].reason if key in known else "kurm: scaling in"


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=300, stateful_step_count=25)


def test_a_resume_is_forgotten_with_its_cause() -> None:
    """The machine above comes this way too seldom: cordoned, resumed, uncordoned, cordoned again."""
    story = Ownership()
    for happens in ("cordon", "resume", "uncordon", "cordon"):
        if happens == "resume":
            story.administrator_resumes()
        else:
            story.kubernetes_node("cordoned")
        story.act(cut_off=False)
        story.quiet_brings_agreement()
    assert story.record is not None
    assert (story.record.draining, story.record.reason) == (True, "kurm: cordoned")
