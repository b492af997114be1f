"""Slurm's own words are read as they come from scontrol 26.05 (its output, shortened)."""

from chaos import scontrol
from chaos.history import Clock, Job, Machine, Share

CLOCK = Clock(0.0, 60.0).of_wall
RUNNING = (
    "JobId=2 StartTime=1970-01-01T00:01:40 JobName=load/gang-1.g SLUID=s6P9 UserId=slurm(401) Priority=7 "
    "JobState=RUNNING Reason=None "
    "AllocNode:Sid=localhost:87 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-4] NumNodes=4 NumCPUs=21 NumTasks=7 "
    "CPUs/Task=3 ReqTRES=cpu=21,mem=6.5G,node=1,billing=21 Partition=services Socks/Node=* JOB_GRES=(null) "
    "Nodes=n1 CPU_IDs=2-7 Mem=1800 GRES= Nodes=n[2-3] CPU_IDs=0-4,6 Mem=1800 GRES= Nodes=n4 CPU_IDs=0 Mem=900 GRES= "
    "MinCPUsNode=3 WorkDir=/ AdminComment=kurm:11-22:load/gang-1 Comment=hi there=x y OOMKillStep=0"
)
WAITING = (
    "JobId=3 JobName=q SLUID=s7 Priority=1 JobState=PENDING Reason=PartitionDown Partition=main ExcNodeList=n[1-2] "
    "NodeList= NumNodes=1-1 NumCPUs=8 NumTasks=1 ReqTRES=cpu=8,mem=10M,node=1,billing=8 AllocTRES=(null) WorkDir=/"
)
NODE = (
    "NodeName=n1 CoresPerSocket=1  CPUAlloc=8 CPUTot=8 CPULoad=0.00 RealMemory=16000 AllocMem=2100 "
    "State={} ThreadsPerCore=1 Partitions=main,pin"
)


def test_a_job_tells_what_it_holds_of_each_node() -> None:
    """Nodes of the same share stand together."""
    share = Share(cpus=6, memory=1800)
    holds = {"n1": share, "n2": share, "n3": share, "n4": Share(cpus=1, memory=900)}
    expected = Job(
        id=2,
        sluid="s6P9",
        name="load/gang-1.g",
        reason="None",
        partition="services",
        priority=7,
        signature="kurm:11-22:load/gang-1",
        cpus=21,
        memory=6656,
        started=40.0,
        slots=7,
        holds=holds,
    )
    assert (expected,) == scontrol.jobs(RUNNING, CLOCK)
    assert expected.owner == "load/gang-1"


def test_a_job_that_waits_holds_nothing() -> None:
    """It says what it asks for, and where it must not go."""
    (found,) = scontrol.jobs(WAITING, CLOCK)
    assert (
        found.holds,
        found.cpus,
        found.memory,
        found.excluded,
        found.reason,
    ) == ({}, 8, 10, ("n1", "n2"), "PartitionDown")


def test_a_job_that_has_ended_is_none() -> None:
    """It is told of until MinJobAge is over."""
    assert scontrol.jobs(RUNNING.replace("=RUNNING", "=CANCELLED"), CLOCK) == ()


def test_a_node_takes_jobs_unless_it_is_drained_or_down() -> None:
    """Words are joined by a plus."""
    states = ("MIXED+DYNAMIC_NORM+EXTERNAL", "IDLE+DRAIN+EXTERNAL", "DOWN*+EXTERNAL")
    found = [scontrol.nodes(NODE.format(state))["n1"] for state in states]
    assert [Machine(8, 16_000), Machine(8, 16_000, taking=False), Machine(8, 16_000, taking=False)] == found
