"""Whose a drain is: ours goes with its cause, an administrator's goes with the administrator, and so does a resume."""

from dataclasses import replace

import pytest

from kurm.domain.agreement import Down, Drain, Instruction, Mark, Remember, Retract, Undrain, decide
from kurm.domain.report import say
from kurm.domain.world import Claim, Pod, Record, World, mark
from unit.domain.one_node import FAN, POD, UP, claim

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
