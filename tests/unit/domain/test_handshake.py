"""Whoever evicts and whoever lifts a drain never cross: no pod is evicted on whose node jobs may start, or run."""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kurm.domain import world
from kurm.domain.agreement import Drain, Undrain, decide
from kurm.domain.causes import of_node
from kurm.domain.noderecord import NodeRecord
from kurm.domain.report import RESUMING, say
from kurm.domain.signals import PROTECTED, SLURM_DRAINED
from kurm.domain.world import Claim, Record, World, mark
from kurm.kube.resources import Condition, ObjectMeta
from kurm.syncer.objects import Pod, PodStatus
from kurm.syncer.told import Told

FEATURES = ("nodeset:workers",)
WANTED = NodeRecord(cpus=4, real_memory=1000, gres=(), features=FEATURES, weight=1)


def slurmd(uid: int, version: int, *, protected: bool = True, drained: bool = False, reason: str = "NotDrained") -> Pod:
    """Return a slurmd pod as the API server has it."""
    labels = {PROTECTED: "true"} if protected else {}
    metadata = ObjectMeta(name="workers-n1", uid=f"pod-{uid}", resource_version=str(version), labels=labels)
    return Pod(metadata=metadata, status=PodStatus(conditions=(Condition(SLURM_DRAINED, str(drained), reason),)))


def drained(pod: Pod) -> bool:
    """Whether a pod is told that its node is drained."""
    condition = pod.condition(SLURM_DRAINED)
    return condition is not None and condition.status == "True"


def version(pod: Pod) -> int:
    """Return the number of a pod's version."""
    return int(pod.metadata.resource_version)


@dataclass(frozen=True)
class Write:
    """A condition on its way to the API server; with a base only that version may be changed."""

    drained: bool
    reason: str
    base: Pod
    exactly: bool


class Handshake(RuleBasedStateMachine):
    """One node. The API server and Slurm are true; the operator and the syncer see them late, and calls take time."""

    def __init__(self) -> None:
        super().__init__()
        self.cordoned = False
        self.pod: Pod | None = slurmd(1, 1)
        self.record = Record(extra=mark("uid-1"), registered=True, attached=True, features=FEATURES)
        self.versions = self.uids = 1
        self.operators_view, self.operator_saw_cordon = self.pod, False
        self.turn = 0
        self.turns = (
            self.arrive,
            self.operator_looks,
            self.operator_acts,
            self.syncer_looks,
            lambda: self.syncer_rounds(sent=True),
            lambda: self.syncer_tells() if self.telling is None else None,
        )
        self.start()

    def start(self) -> None:
        """A syncer starts: it lists, and knows of no write of the one before."""
        self.told = Told(lambda: 0.0)
        self.view, self.saw_cordon = self.pod, self.cordoned
        self.telling: Write | None = None
        self.lost: list[Write] = []
        self.lifting = ""
        """The drain is being lifted: `sent`; or may be, nobody knows: `lost`."""

    @property
    def seen(self) -> Pod | None:
        """The pod as the syncer knows it."""
        return self.told.newest(self.view) if self.view is not None else None

    def sides(self) -> tuple[Claim, world.Pod | None]:
        """Return Kubernetes' side as the syncer knows it."""
        causes = of_node(cordoned=self.saw_cordon, annotations={}, conditions={})
        pod = self.seen
        if pod is None:
            return Claim("uid-1", WANTED, causes=causes), None
        protected = pod.metadata.labels.get(PROTECTED) == "true"
        decided = world.Pod(pod.metadata.uid, ready=True, protected=protected, proven=self.told.proven(pod))
        return Claim("uid-1", WANTED, causes=causes), decided

    def write(self, pod: Pod) -> None:
        """Let the API server have a new version."""
        self.versions += 1
        self.pod = replaced(pod, self.versions)

    @rule(cordon=st.booleans())
    def people(self, *, cordon: bool) -> None:
        """Somebody cordons the node, or uncordons it."""
        self.cordoned = cordon

    @rule(acts=st.booleans())
    def operator(self, *, acts: bool) -> None:
        """It sees what is, or acts by what it saw."""
        if acts:
            self.operator_acts()
        else:
            self.operator_looks()

    def operator_looks(self) -> None:
        """Its cache is what it was at some moment."""
        if self.pod is not None:
            self.operators_view, self.operator_saw_cordon = self.pod, self.cordoned

    def operator_acts(self) -> None:
        """It takes the label off, or puts it back, for the very version that it has seen."""
        seen = self.operators_view
        wanted = not (drained(seen) and self.operator_saw_cordon)
        current = self.pod is not None and version(self.pod) == version(seen)
        if current and wanted != (seen.metadata.labels.get(PROTECTED) == "true"):
            condition = seen.status.conditions[0]
            self.write(slurmd(self.uids, 0, protected=wanted, drained=drained(seen), reason=condition.reason))

    @precondition(lambda self: self.pod is not None and self.pod.metadata.labels.get(PROTECTED) != "true")
    @rule()
    def somebody_evicts(self) -> None:
        """`kubectl drain` asks again and again."""
        assert self.record.draining, "evicted where jobs may start"
        assert not self.record.busy, "evicted where a job runs"
        self.pod = None

    def operator_makes_the_pod_anew(self) -> None:
        """After the uncordon."""
        self.uids += 1
        self.write(slurmd(self.uids, 0))

    @rule(starts=st.booleans())
    def job(self, *, starts: bool) -> None:
        """A job starts where Slurm lets it, or ends."""
        self.record = replace(self.record, busy=starts and (self.record.busy or not self.record.draining))

    @rule()
    def syncer_looks(self) -> None:
        """Its watch catches up."""
        if self.pod is not None:
            self.told.seen(self.pod)
        elif self.view is not None:
            self.told.forget(self.view)
        self.view, self.saw_cordon = self.pod, self.cordoned

    @rule(sent=st.booleans())
    def syncer_rounds(self, *, sent: bool) -> None:
        """It reads the record again, decides and writes to Slurm; lifting a drain takes its time, if `sent`."""
        claim, pod = self.sides()
        for instruction in decide(World({"n1": claim}, {"n1": pod} if pod else {}, {"n1": self.record})):
            if isinstance(instruction, Drain):
                self.record = replace(
                    self.record, draining=True, reason=instruction.reason, comment=instruction.comment or ""
                )
            elif isinstance(instruction, Undrain):
                self.lifting = "sent"
                if not sent:
                    self.slurm_lifts(answers=True)

    @precondition(lambda self: self.lifting)
    @rule(answers=st.booleans())
    def slurm_lifts(self, *, answers: bool) -> None:
        """The call arrives; whether the answer does is another matter."""
        if self.record.drained_by_us:
            self.record = replace(self.record, draining=False, reason="", comment="")
        self.lifting = "" if answers else "lost"

    @precondition(lambda self: self.lifting == "lost")
    @rule()
    def the_lost_call_is_over(self) -> None:
        """So long after it that it has happened, or never will."""
        self.lifting = ""

    @precondition(lambda self: self.telling is None)
    @rule()
    def syncer_tells(self) -> None:
        """It reads the record again and tells the pod what it is to be told."""
        claim, decided = self.sides()
        seen = self.seen
        if seen is None or decided is None:
            return
        said = say(claim, self.record, decided)
        if (said.drained and self.lifting) or (said.reason == RESUMING and decided.held):
            return
        reason = "Drained" if said.drained else (RESUMING if said.reason == RESUMING else "NotDrained")
        held = seen.condition(SLURM_DRAINED)
        assert held is not None
        if (held.status, held.reason) != (str(said.drained), reason):
            self.telling = Write(said.drained, reason, seen, exactly=said.drained)
            if said.drained:
                self.told.tells(seen)

    @precondition(lambda self: self.telling is not None)
    @rule(answers=st.booleans(), late=st.booleans())
    def the_server_takes_it(self, *, answers: bool, late: bool) -> None:
        """A write arrives, and its answer; or the answer is lost; or it is not there yet and its sender gives up."""
        write, self.telling = self.telling, None
        assert write is not None
        if late and not answers:
            self.lost.append(write)
            return
        taken = self.take(write)
        if answers and taken:
            assert self.pod is not None
            self.told.answered(self.pod)
        elif answers:
            self.told.refused(write.base)

    @precondition(lambda self: self.lost)
    @rule()
    def a_lost_one_arrives_late(self) -> None:
        """Nobody waits for it any more."""
        self.take(self.lost.pop())

    def take(self, write: Write) -> bool:
        """Return whether the API server makes a write."""
        pod = self.pod
        if pod is None or pod.metadata.uid != write.base.metadata.uid:
            return False
        if write.exactly and version(pod) != version(write.base):
            return False
        protected = pod.metadata.labels.get(PROTECTED) == "true"
        self.write(slurmd(self.uids, 0, protected=protected, drained=write.drained, reason=write.reason))
        return True

    @rule()
    def syncer_is_killed(self) -> None:
        """What it had sent arrives before the next one has its lists, or never."""
        self.start()

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        """Everybody takes turns, as most of the time; the other rules come between two turns."""
        for _ in range(steps):
            self.turn = (self.turn + 1) % len(self.turns)
            self.turns[self.turn]()

    def arrive(self) -> None:
        """What is on its way arrives, and is answered."""
        if self.telling is not None:
            self.the_server_takes_it(answers=True, late=False)
        if self.lifting:
            self.slurm_lifts(answers=True)
        if self.pod is None and not self.cordoned:
            self.operator_makes_the_pod_anew()

    def teardown(self) -> None:
        """Left alone and uncordoned, the node takes jobs, and its pod is protected."""
        self.cordoned = False
        self.lost.clear()
        self.time_passes(10 * len(self.turns))
        assert self.pod is not None
        assert not self.record.draining
        assert (self.pod.metadata.labels.get(PROTECTED), drained(self.pod)) == ("true", False)


def replaced(pod: Pod, number: int) -> Pod:
    """Return a pod in another version."""
    return slurmd(
        int(pod.metadata.uid.removeprefix("pod-")),
        number,
        protected=pod.metadata.labels.get(PROTECTED) == "true",
        drained=drained(pod),
        reason=pod.status.conditions[0].reason,
    )


TestHandshake = Handshake.TestCase
TestHandshake.settings = settings(max_examples=400, stateful_step_count=50)


def cordoned() -> Handshake:
    """Return the node drained for a cordon; nobody has been told."""
    story = Handshake()
    story.people(cordon=True)
    story.syncer_looks()
    story.syncer_rounds(sent=False)
    return story


def told_and_answered(story: Handshake) -> None:
    """Let the syncer tell the pod, and have the answer."""
    story.syncer_tells()
    if story.telling is not None:
        story.the_server_takes_it(answers=True, late=False)


def evicted_if_possible(story: Handshake) -> None:
    """Let the operator do what it saw, and somebody evict; the machine asserts that no job can be there."""
    story.operator_acts()
    assert story.pod is not None
    if story.pod.metadata.labels.get(PROTECTED) != "true":
        story.somebody_evicts()


def test_a_label_that_is_about_to_be_taken_off_stays_when_the_node_comes_back() -> None:
    """The operator has seen the proof; the uncordon is seen by the syncer alone."""
    story = cordoned()
    told_and_answered(story)
    story.operator_looks()
    story.people(cordon=False)
    for _ in range(3):
        story.syncer_looks()
        story.syncer_rounds(sent=False)
        told_and_answered(story)
    assert not story.record.draining
    evicted_if_possible(story)


def test_a_node_whose_pod_bears_no_label_waits_for_it() -> None:
    """The label is off and nobody has evicted yet."""
    story = cordoned()
    told_and_answered(story)
    story.operator_looks()
    story.operator_acts()
    story.people(cordon=False)
    for _ in range(3):
        story.syncer_looks()
        story.syncer_rounds(sent=False)
        told_and_answered(story)
    assert story.record.draining
    story.somebody_evicts()


def test_a_proof_on_its_way_counts_as_one() -> None:
    """It is sent, the node is uncordoned, and it arrives after the round."""
    story = cordoned()
    story.syncer_tells()
    story.people(cordon=False)
    story.syncer_looks()
    story.syncer_rounds(sent=False)
    story.the_server_takes_it(answers=True, late=False)
    story.operator_saw_cordon = True
    assert story.pod is not None
    story.operators_view = story.pod
    evicted_if_possible(story)


def test_an_answered_proof_counts_before_the_watch_brings_it() -> None:
    """The cache is older than the answer."""
    story = cordoned()
    told_and_answered(story)
    story.operator_looks()
    story.saw_cordon = story.cordoned = False
    story.syncer_rounds(sent=False)
    evicted_if_possible(story)


def test_nothing_is_proven_while_a_drain_is_being_lifted() -> None:
    """The call is on its way, and the node is cordoned again."""
    story = cordoned()
    story.people(cordon=False)
    story.syncer_looks()
    story.syncer_rounds(sent=True)
    story.people(cordon=True)
    story.syncer_looks()
    told_and_answered(story)
    story.operator_looks()
    story.slurm_lifts(answers=True)
    evicted_if_possible(story)


def test_a_lost_proof_comes_too_late() -> None:
    """Its sender has given it up, and taken it back."""
    story = cordoned()
    story.syncer_tells()
    story.the_server_takes_it(answers=False, late=True)
    story.people(cordon=False)
    for _ in range(3):
        story.syncer_looks()
        story.syncer_rounds(sent=False)
        told_and_answered(story)
    assert not story.record.draining
    story.people(cordon=True)
    story.a_lost_one_arrives_late()
    story.operator_looks()
    evicted_if_possible(story)
