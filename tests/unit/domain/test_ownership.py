"""Whose a drain is: ours goes with its cause, an administrator's goes with the administrator, and so does a resume."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kurm.domain.agreement import Create, Down, Drain, Instruction, Mark, Remember, Retract, Undrain, decide
from kurm.domain.causes import RELEASED, Cause, Memory, Told, of_node
from kurm.domain.noderecord import NodeRecord
from kurm.domain.report import say
from kurm.domain.world import Claim, Pod, Record, World, mark

FEATURES = ("nodeset:workers",)
WANTED = NodeRecord(cpus=4, real_memory=1000, gres=(), features=FEATURES, weight=1)
UP = Record(extra=mark("uid-1"), registered=True, attached=True, features=FEATURES)
POD = Pod("pod-1", ready=True, protected=True)
FAN = "fan is loud"


def claim(
    *, cordoned: bool = False, words: str = "", ready: bool = True, deadlock: bool = False, dead: str = ""
) -> Claim:
    """Return a claim on a Kubernetes node in that state."""
    conditions = {"Ready": Told(str(ready), "" if ready else "no word"), "KernelDeadlock": Told(str(deadlock), "stuck")}
    causes = of_node(
        cordoned=cordoned,
        annotations={"kurm.dev/reason": words},
        conditions=conditions,
        chosen=["KernelDeadlock"],
        dead=dead,
    )
    return Claim("uid-1", WANTED, causes=causes)


GOOD, CORDONED, UNREADY = claim(), claim(cordoned=True), claim(ready=False)
BOTH = claim(cordoned=True, ready=False)
DEAD = claim(ready=False, dead="not heard of since noon")
BY_CORDON = replace(UP, draining=True, reason="kurm: cordoned", comment="[kurm: drained=cordoned]")
RESUMED = replace(BY_CORDON, draining=False, reason="")
BY_POD = replace(UP, draining=True, reason="kurm: slurmd's pod is gone", comment="[kurm: drained=pod]")
BUSY_UNREADY = replace(UP, draining=True, busy=True, reason="kurm: node not ready", comment="[kurm: drained=not-ready]")
BY_DEATH = replace(UP, draining=True, reason="kurm: node dead: not heard of since noon", comment="[kurm: drained=dead]")
BY_RELEASE = replace(UP, draining=True, reason="kurm: scaling in", comment="[kurm: drained=released]")
BY_ADMIN = replace(UP, draining=True, reason=FAN)
CORDON = Drain("n1", "kurm: cordoned", "cordoned", "[kurm: drained=cordoned]")
GONE = Drain("n1", "kurm: slurmd's pod is gone", "pod", "[kurm: drained=pod]")


@pytest.mark.parametrize(
    ("claimed", "pod", "record", "expected"),
    [
        pytest.param(CORDONED, POD, UP, [CORDON], id="cordoned: the drain and its memory are one call"),
        pytest.param(CORDONED, POD, BY_CORDON, [], id="drained already"),
        pytest.param(GOOD, POD, BY_CORDON, [Undrain("n1", "")], id="uncordoned"),
        pytest.param(
            claim(cordoned=True, words="disk errors"),
            POD,
            BY_CORDON,
            [Drain("n1", "kurm: cordoned: disk errors", "cordoned")],
            id="the words came after the cordon",
        ),
        pytest.param(
            UNREADY,
            POD,
            UP,
            [Drain("n1", "kurm: node not ready: no word", "not-ready", "[kurm: drained=not-ready]")],
            id="not ready",
        ),
        pytest.param(
            claim(deadlock=True),
            POD,
            UP,
            [
                Drain(
                    "n1",
                    "kurm: KernelDeadlock: stuck",
                    "condition/KernelDeadlock",
                    "[kurm: drained=condition/KernelDeadlock]",
                )
            ],
            id="a chosen condition",
        ),
        pytest.param(BOTH, POD, BY_CORDON, [], id="a weaker cause comes to it"),
        pytest.param(
            UNREADY,
            POD,
            BY_CORDON,
            [Drain("n1", "kurm: node not ready: no word", "not-ready", "[kurm: drained=not-ready]")],
            id="the strongest goes, and another one is left",
        ),
        pytest.param(GOOD, None, UP, [GONE], id="the pod is gone"),
        pytest.param(GOOD, None, replace(UP, attached=False), [], id="the pod has not come yet: jobs may wait for it"),
        pytest.param(
            GOOD,
            replace(POD, ready=False),
            BY_POD,
            [Drain("n1", "kurm: slurmd's pod is not ready", "pod")],
            id="a new pod, and no slurmd yet",
        ),
        pytest.param(
            GOOD, None, replace(BY_POD, attached=False), [], id="slurmctld was started again and knows of no slurmd"
        ),
        pytest.param(GOOD, POD, BY_POD, [Undrain("n1", "")], id="the new slurmd answers"),
        pytest.param(GOOD, replace(POD, ready=False), UP, [], id="a slurmd that stumbles drains nothing"),
        pytest.param(
            GOOD, replace(POD, proven=True), BY_CORDON, [Retract("n1")], id="uncordoned, and its pod may be evicted"
        ),
        pytest.param(
            GOOD, replace(POD, protected=False), BY_CORDON, [Retract("n1")], id="uncordoned, and its pod can be evicted"
        ),
        pytest.param(GOOD, replace(POD, proven=True), None, [Retract("n1")], id="Slurm has lost its state: the same"),
        pytest.param(
            DEAD,
            POD,
            BUSY_UNREADY,
            [
                Down("n1"),
                Drain("n1", "kurm: node dead: not heard of since noon", "dead", "[kurm: drained=dead]"),
            ],
            id="dead: its jobs are requeued",
        ),
        pytest.param(DEAD, POD, replace(BY_DEATH, down=True), [], id="dead and down: Slurm has requeued them"),
        pytest.param(DEAD, POD, BY_DEATH, [], id="dead and empty: nobody is to be requeued"),
        pytest.param(DEAD, POD, replace(BY_ADMIN, busy=True), [Down("n1")], id="dead: an administrator's reason stays"),
        pytest.param(GOOD, POD, BY_DEATH, [Undrain("n1", "")], id="back from the dead: slurmd has ended the DOWN"),
        pytest.param(GOOD, POD, replace(BY_DEATH, down=True), [Undrain("n1", "", down=True)], id="nobody has ended it"),
        pytest.param(CORDONED, POD, replace(BY_ADMIN, draining=False, down=True), [], id="an administrator's DOWN"),
        pytest.param(
            CORDONED, POD, replace(UP, down=True, reason="Not responding"), [CORDON], id="nobody's DOWN, and cordoned"
        ),
        pytest.param(
            GOOD, replace(POD, release="scaling in"), replace(BY_RELEASE, busy=True), [], id="jobs are waited for"
        ),
        pytest.param(
            GOOD,
            replace(POD, release="scaling in", overdue=True),
            replace(BY_RELEASE, busy=True),
            [Down("n1")],
            id="jobs were waited for long enough",
        ),
        pytest.param(CORDONED, POD, BY_ADMIN, [], id="an administrator drained first"),
        pytest.param(GOOD, POD, BY_ADMIN, [], id="and keeps the drain"),
        pytest.param(
            CORDONED, POD, RESUMED, [Remember("n1", "[kurm: overridden=cordoned]")], id="an administrator has resumed"
        ),
        pytest.param(CORDONED, POD, replace(RESUMED, comment="[kurm: overridden=cordoned]"), [], id="that is kept"),
        pytest.param(
            UNREADY,
            POD,
            replace(
                UP,
                draining=True,
                reason="kurm: node not ready: no word",
                comment="[kurm: drained=not-ready overridden=cordoned]",
            ),
            [Remember("n1", "[kurm: drained=not-ready]")],
            id="a resume is forgotten with its cause, also while we drain for another",
        ),
        pytest.param(
            GOOD,
            POD,
            replace(UP, comment="[kurm: overridden=cordoned]"),
            [Remember("n1", "")],
            id="the next counts anew",
        ),
        pytest.param(
            GOOD,
            POD,
            replace(BY_ADMIN, comment="[kurm: drained=cordoned]"),
            [Remember("n1", "")],
            id="ours was taken over by an administrator, and its cause is gone",
        ),
        pytest.param(
            CORDONED, POD, replace(BY_ADMIN, comment="[kurm: drained=cordoned]"), [], id="taken over, and cordoned"
        ),
        pytest.param(
            BOTH,
            POD,
            RESUMED,
            [
                Drain(
                    "n1",
                    "kurm: node not ready: no word",
                    "not-ready",
                    "[kurm: drained=not-ready overridden=cordoned]",
                )
            ],
            id="another cause is another matter",
        ),
        pytest.param(GOOD, POD, RESUMED, [Remember("n1", "")], id="with its cause the resume is forgotten"),
        pytest.param(
            GOOD,
            replace(POD, release="scaling in"),
            replace(UP, comment="[kurm: drained=released]"),
            [Drain("n1", "kurm: scaling in", "released")],
            id="a release is not to be resumed",
        ),
        pytest.param(
            CORDONED,
            POD,
            replace(UP, comment="inventory 7"),
            [replace(CORDON, comment="inventory 7 [kurm: drained=cordoned]")],
            id="an administrator's comment stays",
        ),
        pytest.param(
            GOOD, POD, replace(BY_CORDON, extra=mark("uid-2")), [Mark("n1", "uid-1", "")], id="not this node's drain"
        ),
    ],
)
def test_whose_a_drain_is(claimed: Claim, pod: Pod | None, record: Record | None, expected: list[Instruction]) -> None:
    """One node in every state that matters."""
    assert expected == decide(World({"n1": claimed}, {"n1": pod} if pod else {}, {"n1": record} if record else {}))


def test_what_was_overridden_is_told() -> None:
    """The node is in service, and the pod says against what; a drain of its own says itself."""
    said = say(claim(cordoned=True, words="disk errors"), RESUMED, POD)
    assert (said.ready, said.reason) == (True, "Overridden")
    assert said.message == "it was resumed in Slurm although: cordoned: disk errors"
    assert say(CORDONED, BY_CORDON, POD).reason == "Drained"
    assert say(GOOD, RESUMED, POD).reason == "InService"


@pytest.mark.parametrize(
    ("record", "idle", "busy"),
    [
        (Record(), "UP", "UP"),
        (Record(draining=True), "DRAINED", "DRAINING"),
        (Record(flags=("FUTURE",)), "FUTURE", "FUTURE"),
        (Record(down=True), "DOWN", "DOWN"),
        (Record(down=True, draining=True), "DOWN+DRAIN", "DOWN+DRAIN"),
        (Record(draining=True, flags=("INVALID_REG",)), "DRAINED+INVALID_REG", "DRAINING+INVALID_REG"),
    ],
)
def test_the_state_of_a_record_does_not_change_with_each_job(record: Record, idle: str, busy: str) -> None:
    """Only while it drains jobs make a difference: each change is a write to the pod."""
    assert (idle, busy) == (record.state, replace(record, busy=True).state)


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
