"""slurmctld's init tells of which nodes the log speaks, and nothing else of it."""

import importlib
import json
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from slurmctld_init.ring import RING

from unit.images.test_configuration import SECONDS, Pod, pod, status, until

IMAGES = Path(__file__).parents[3] / "images/slurm"
LINES = """One
[now] update_node: node n1 state set to DRAINED
[now] sched: Allocate JobId=2 NodeList=n3 #CPUs=1 Partition=main
[now] error: Nodes n[4-6] not responding, setting DOWN
[now] update_node: node n1 reason set to: node n9 returned to service
"""

__all__ = ["pod"]


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module as the image has it."""
    monkeypatch.syspath_prepend(str(IMAGES))
    return importlib.import_module("slurmctld_init.hints")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("update_node: node n1 state set to DRAINING", "n1"),
        ("update_node: node n1 reason set to: kurm: node n9 returned to service", "n1"),
        ("_update_node_weight: nodes n[1-3] weight set to: 7", "n[1-3]"),
        ("drain_nodes: node n1 state set to DRAIN", "n1"),
        ("Node n1 now responding", "n1"),
        ("Node n1 rebooted 0 secs ago", "n1"),
        ("node n1 returned to service", "n1"),
        ("node_did_resp: node n1 returned to service", "n1"),
        ("error: Nodes n1,n[4-6] not responding", "n1,n[4-6]"),
        ("error: Nodes n1 not responding, setting DOWN", "n1"),
        ("error: Setting node n1 state to INVAL with reason:Low RealMemory", "n1"),
        ("validate_node_specs: Node n1 unexpectedly rebooted boot_time=1 last response=2", "n1"),
        ("validate_node_specs: node n1 registered with 2 jobs", "n1"),
        ("sched: Allocate JobId=2 NodeList=n1 #CPUs=1 Partition=main", ""),
        ("_job_complete: JobId=2 WEXITSTATUS 0", ""),
        ("requeue job JobId=1 due to failure of node n1", ""),
        ("Requeuing JobId=1", ""),
        ("_slurm_rpc_submit_batch_job: JobId=1 SLUID=s InitPrio=1 usec=697", ""),
        ("Node configuration differs from hardware: CPUs=2:2(hw)", ""),
        ("debug: job name: node n1 state set to DRAIN", ""),
    ],
)
def test_a_line_names_a_node_or_is_none(hints: ModuleType, line: str, expected: str) -> None:
    """Lines as slurmctld 26.05.5 writes them. Those about jobs are none: there are twenty a second."""
    assert expected == hints.hosts(line)


async def test_a_ring_that_was_too_short_says_so(hints: ModuleType) -> None:
    """Who asks late is told that there were others; so is who comes with a number of another ring."""
    ring = hints.Hints()
    begun = ring.ring.next
    for number in range(RING + 1):
        ring.hear(f"Node n{number} now responding")
    answer = await ring.after(begun)
    assert (answer["lost"], answer["next"]) == (True, begun + RING + 1)
    assert (await ring.after(answer["next"] - 2)) == {
        "next": answer["next"],
        "nodes": [f"n{RING - 1}", f"n{RING}"],
        "lost": False,
    }
    assert (await hints.Hints().after(answer["next"]))["lost"]


async def test_a_deletion_is_told_as_something_that_was_lost(hints: ModuleType) -> None:
    """It names nobody then: whoever follows looks at all nodes, on the condition that anything has changed."""
    ring = hints.Hints()
    begun = ring.ring.next
    ring.hear("select/cons_tres: select_p_reconfigure: select/cons_tres: reconfigure")
    assert (await ring.after(begun)) == {"next": begun + 1, "nodes": [], "lost": True}


async def test_a_list_that_is_too_long_is_lost(hints: ModuleType) -> None:
    """Nobody is told half of it."""
    ring = hints.Hints()
    begun = ring.ring.next
    ring.hear("Node n1 now responding")
    ring.hear(f"error: Nodes {','.join(f'host{number}' for number in range(100))} not responding")
    assert (await ring.after(begun)) == {"next": begun + 2, "nodes": [], "lost": True}


def ask(place: Pod, after: int) -> dict[str, Any]:
    """Ask for hints as the syncer does."""
    with urllib.request.urlopen(f"http://127.0.0.1:{place.port}/hints?after={after}", timeout=SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_the_init_tells_which_nodes_the_log_speaks_of(pod: Pod) -> None:
    """The question waits until there is something to tell."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        first = ask(pod, 0)
        assert first["lost"]
        number = first["next"]
        assert isinstance(number, int)
        pod.project("h2", LINES)
        found: list[object] = []
        while number < first["next"] + 3:  # in one answer, or in several
            answer = ask(pod, number)
            found, number = [*found, *answer["nodes"]], answer["next"]
            assert not answer["lost"]
        assert (found, number) == (["n1", "n[4-6]"], first["next"] + 3)
