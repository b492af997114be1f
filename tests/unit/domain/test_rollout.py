"""Whose pods make room for new ones: as tables, and as a NodeSet that is updated while nodes fail and people act."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kurm.domain.nodeset import UpdateStrategy
from kurm.domain.rollout import Member, limit, renew

ROLLING = UpdateStrategy()
OLD = Member("", outdated=True)
TOLD = Member("", outdated=True, serving=False, told=True)
ASIDE = Member("", outdated=True, serving=False)
LATE = replace(ASIDE, made=1.0)
BROKEN = Member("", outdated=True, serving=False, broken=True)
NEW, COMING, AWAY = Member(""), Member("", serving=False, absent=True), Member("", serving=False)


@pytest.mark.parametrize(
    ("wanted", "nodes", "expected"),
    [(1, 0, 1), (3, 2, 3), ("10%", 0, 1), ("10%", 10, 1), ("10%", 11, 2), ("100%", 7, 7), ("1%", 5000, 50)],
)
def test_a_share_is_rounded_up(wanted: int | str, nodes: int, expected: int) -> None:
    """As DaemonSets do it; none would be a roll-out that never begins."""
    assert limit(UpdateStrategy(max_unavailable=wanted), nodes) == expected


@pytest.mark.parametrize(
    ("nodes", "most", "expected"),
    [
        ((OLD, OLD, OLD), 1, {0}),
        ((OLD, OLD, OLD), 2, {0, 1}),
        ((OLD, OLD, OLD), "50%", {0, 1}),
        ((NEW, NEW), 1, set()),
        ((OLD, TOLD, OLD), 1, {1}),
        ((OLD, TOLD, OLD), 2, {0, 1}),
        ((OLD, COMING, OLD), 1, set()),
        ((OLD, AWAY, OLD), 1, set()),
        ((OLD, AWAY, OLD), 2, {0}),
        ((OLD, ASIDE, OLD), 1, {1}),
        ((OLD, ASIDE, ASIDE, OLD), 1, {1}),
        ((OLD, ASIDE, ASIDE, OLD), 3, {0, 1, 2}),
        ((OLD, ASIDE, TOLD), 1, {2}),
        ((COMING, ASIDE), 1, set()),
        ((BROKEN, ASIDE), 1, {0}),
        ((COMING, ASIDE), 2, {1}),
        ((AWAY, ASIDE), 1, set()),
        ((OLD, BROKEN, OLD), 1, {1}),
        ((BROKEN, BROKEN, BROKEN), 1, {0, 1, 2}),
        ((TOLD, BROKEN, OLD), 1, {0, 1}),
        ((TOLD, TOLD, TOLD), 1, {0}),
        ((TOLD, AWAY, AWAY), 1, {0}),
        ((ASIDE, LATE), 1, {1}),
        ((ASIDE, LATE), 2, {0, 1}),
        ((ASIDE, LATE, LATE), 1, {1}),
        ((TOLD, LATE, OLD), 1, {0}),
    ],
)
def test_whose_pod_goes(nodes: tuple[Member, ...], most: int | str, expected: set[int]) -> None:
    """Each row is one moment: those told go on, those out of service come first, the budget counts all that are out."""
    members = [_named(node, place) for place, node in enumerate(nodes)]
    strategy = UpdateStrategy(max_unavailable=most)
    assert renew(members, strategy) == {f"n{place}" for place in expected}
    assert renew(members, UpdateStrategy(type="OnDelete", max_unavailable=most)) == set()


def _named(node: Member, place: int) -> Member:
    return replace(node, node=f"n{place}")


@dataclass
class Node:
    """A node with its pod, as the world knows it; None for no pod."""

    pod: int | None = 0
    """The template that its pod was made of."""
    runs: bool = True
    """Its pod answers."""
    registered: bool = True
    """Slurm knows of it."""
    told: bool = False
    jobs: bool = False
    drained: bool = False
    """By an administrator."""
    made: int = 0
    """In which second its pod was made."""
    ours: bool = False
    """It was taken out of service by us, while it could have served, and has not been back since."""

    @property
    def up(self) -> bool:
        """Whether slurmd answers there."""
        return self.pod is not None and self.runs


class Updates(RuleBasedStateMachine):
    """A NodeSet whose template changes, with images that run or do not, jobs, administrators and failing pods."""

    @initialize(most=st.integers(1, 3), number=st.integers(1, 6))
    def begin(self, most: int, number: int) -> None:
        """Some nodes, all of them up to date."""
        self.most, self.template, self.good, self.now = most, 0, {0}, 0
        self.strategy = UpdateStrategy(max_unavailable=most)
        self.nodes = {f"n{each}": Node() for each in range(number)}

    @rule(good=st.booleans())
    def template_changes(self, good: bool) -> None:  # noqa: FBT001
        """To one whose image runs, or to one that cannot be pulled."""
        self.template += 1
        self.good |= {self.template} if good else set()

    @rule(data=st.data())
    def jobs_come_and_end(self, data: st.DataObject) -> None:
        """Jobs come to nodes in service only."""
        node = self._draw(data)
        node.jobs = not node.jobs and node.up and not node.told and not node.drained

    @rule(data=st.data())
    def an_administrator_drains_or_resumes(self, data: st.DataObject) -> None:
        """A node, in Slurm; its pod runs on."""
        node = self._draw(data)
        node.drained = not node.drained

    @rule(data=st.data())
    def a_pod_fails_or_recovers(self, data: st.DataObject) -> None:
        """One whose image runs; another never does."""
        node = self._draw(data)
        if node.pod is not None and node.pod in self.good:
            node.runs = not node.runs

    @rule()
    def decide(self) -> None:
        """Do what is decided, as the operator does: tell, take back, delete what is answered."""
        wanted = renew(self._members(), self.strategy)
        for name, node in self.nodes.items():
            if node.told and node.pod is not None and not node.jobs:
                node.pod, node.told = None, False
            elif name in wanted and not node.told:
                assert node.pod != self.template, "an up-to-date pod is told to go"
                node.told = True
                node.ours = node.ours or node.up
            elif node.told and name not in wanted:
                node.told, node.ours = False, False

    @rule()
    def pods_are_made(self) -> None:
        """Of the newest template."""
        for node in self.nodes.values():
            if node.pod is None:
                node.pod, node.made = self.template, self.now
                node.runs, node.registered = self.template in self.good, False

    @rule()
    def a_second_passes(self) -> None:
        """Kubernetes tells no shorter time of a pod."""
        self.now += 1

    @rule()
    def slurmds_register(self) -> None:
        """Those that run: a node with a new pod is back."""
        for node in self.nodes.values():
            if node.up and not node.registered:
                node.registered, node.ours = True, False

    @invariant()
    def no_more_are_out_because_of_us(self) -> None:
        """Than maxUnavailable; a node that had failed before we took it is none of them."""
        if hasattr(self, "nodes"):
            assert sum(node.ours for node in self.nodes.values()) <= self.most

    @precondition(lambda self: hasattr(self, "nodes"))
    @rule()
    def all_are_updated_in_the_end(self) -> None:
        """With an image that runs, when jobs have ended and nobody does anything else; every other turn is ours."""
        self.template_changes(good=True)
        for _ in range(4 * len(self.nodes) + 4):
            for node in self.nodes.values():
                node.jobs, node.drained = False, False
                node.runs = node.pod is None or node.pod in self.good
            self.slurmds_register()
            self.decide()
            self.pods_are_made()
            self.slurmds_register()
        assert {(node.pod, node.told) for node in self.nodes.values()} == {(self.template, False)}

    def _members(self) -> list[Member]:
        return [
            Member(
                name,
                outdated=node.pod is not None and node.pod != self.template,
                serving=node.up and node.registered and not node.told and not node.drained,
                told=node.told,
                broken=node.pod is not None and not node.runs,
                absent=node.pod is None or (node.pod == self.template and not node.runs),
                made=node.made,
            )
            for name, node in self.nodes.items()
        ]

    def _draw(self, data: st.DataObject) -> Node:
        return self.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]


Updates.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestUpdates = Updates.TestCase


@given(
    st.lists(st.sampled_from([OLD, TOLD, ASIDE, LATE, BROKEN, NEW, COMING, AWAY]), max_size=12),
    st.integers(1, 6) | st.sampled_from(["10%", "50%", "100%"]),
)
def test_a_node_in_service_is_taken_only_within_the_budget(nodes: list[Member], most: int | str) -> None:
    """Whatever keeps the others out of service; and only what is outdated is ever taken."""
    members = [_named(node, place) for place, node in enumerate(nodes)]
    strategy = UpdateStrategy(max_unavailable=most)
    found = renew(members, strategy)
    taken = [one for one in members if one.node in found]
    assert all(one.outdated for one in taken)
    out = sum(not one.serving for one in members)
    if new := sum(one.serving for one in taken):
        assert out + new <= limit(strategy, len(members))
