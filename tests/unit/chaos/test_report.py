"""A breach is printed with all that concerns it, and nothing else."""

from pathlib import Path

from chaos.checker import check
from chaos.history import Clock, Event, Fault, History, Line, Request, ordered, read
from chaos.report import report
from unit.chaos.story import always, deed, job, nodes, pod, told

BODY, ANSWER = '{"job":{"admin_comment":"kurm:c:uid-a"}}', '{"job_id":1,"errors":[]}'


def story() -> list[Event]:
    """Return a history in which slurmctld forgets a pod's job, which nobody pins."""
    asked = Request(
        at=2.1,
        asked=2.0,
        to="slurmrestd",
        method="POST",
        path="/slurm/v0.0.45/job/allocate",
        body=BODY,
        status=200,
        answer=ANSWER,
    )
    other = Request(at=2.2, asked=2.0, to="slurmrestd", method="DELETE", path="/slurm/v0.0.45/job/77", status=200)
    return [
        *nodes(),
        pod(1, "uid-a"),
        asked,
        other,
        pod(2.2, "uid-a", node="n1", job="1"),
        told(2.5, job("uid-a", "n1")),
        Line(at=2.0, who="slurmctld", text="sched: _slurm_rpc_allocate_resources JobId=1 NodeList=n1 usec=9"),
        Line(at=2.0, who="slurmctld", text="sched: _slurm_rpc_allocate_resources JobId=12 NodeList=n2 usec=9"),
        Fault(at=3.0, kind="kill", target="slurmctld"),
        deed(3.0, "cordon", "n2"),
        *always(4, 15),
    ]


def test_the_slice_holds_all_of_the_pod_and_no_one_else() -> None:
    """Its versions, what was asked for it, its jobs and the faults."""
    events = ordered(story())
    (breach,) = check(events)
    assert [line.rstrip() for line in report(breach, events).splitlines()] == [
        "P1 at 14.50 s: pod load/uid-a stays bound to n1 without an allocation since 4.00 s",
        "    1.000 pod load/uid-a uid-a  waits",
        "    2.000 slurmctld: sched: _slurm_rpc_allocate_resources JobId=1 NodeList=n1 usec=9",
        f"    2.100 scheduler to slurmrestd (2.000): POST /slurm/v0.0.45/job/allocate {BODY} -> 200 {ANSWER}",
        "    2.200 pod load/uid-a uid-a  on n1 by job 1 slot -",
        "    2.500 slurm (asked 2.48, gate open): job 1 uid-a RUNNING n1:2cpu/200M",
        "    3.000 FAULT kill slurmctld",
        "    4.000 slurm (asked 3.98, gate open): no job",
    ]


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """One JSON object on each line, of any kind."""
    history = History(tmp_path / "history.jsonl", Clock(100.0, 1000.0))
    events = ordered(story())
    for event in events:
        history.add(event)
    history.close()
    assert events == read(history.path)
    assert (history.clock.of(102.5), history.clock.of_wall(1002.5)) == (2.5, 2.5)
