"""The start gate: which pods are recorded, which of them run, and whether Slurm has given out again what they hold."""

from pathlib import Path

import pytest
import start_gate
from hypothesis import given
from hypothesis import strategies as some
from start_gate import (
    EVERYTHING,
    Cgroups,
    Gate,
    Job,
    Node,
    Record,
    Said,
    alive,
    answered,
    left_of,
    named,
    overlap,
    share,
    wait,
)

OWN = "478a90ed-5978-49ab-9b5e-8278a685a8e5"
POD = "b5e03999-5e54-442e-b3b6-30722bf73647"
HELD = Record(POD, 9, 2, 1000, frozenset())
SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def quoted(text: str) -> str:
    """Quote as Go's strconv.Quote does, by which the kubelet writes annotations."""

    def letter(one: str) -> str:
        if one in '"\\':
            return f"\\{one}"
        if one in SHORT:
            return SHORT[one]
        if one.isprintable():
            return one
        return f"\\x{ord(one):02x}" if ord(one) < 0x80 else f"\\u{ord(one):04x}"

    return f'"{"".join(map(letter, text))}"'


def test_the_file_is_what_the_kubelet_makes_of_annotations() -> None:
    """Others' annotations stand around ours, with whatever in them; a value that is none of ours holds everything."""
    text = "\n".join(
        [
            'a.example/note="say \\"x\\"\\ngate.kurm.dev/1=\\"1,1,1\\""',
            f'gate.kurm.dev/{OWN}="12,4,8192,gpu,fpga"',
            f'gate.kurm.dev/{POD}="soon"',
            'kubernetes.io/config.source="api"',
        ]
    )
    assert start_gate.records(text) == [
        Record(OWN, 12, 4, 8192, frozenset({"gpu", "fpga"})),
        Record(POD, 0, EVERYTHING, EVERYTHING, frozenset()),
    ]


RECORDS = some.builds(
    Record,
    some.uuids().map(str),
    some.integers(0, 2**32),
    some.integers(0, 2**20),
    some.integers(0, 2**40),
    some.frozensets(some.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True), max_size=3),
)


@given(
    some.lists(RECORDS, max_size=5, unique_by=lambda one: one.uid),
    some.dictionaries(some.from_regex(r"[a-z]{1,9}\.example/[a-z]{1,9}", fullmatch=True), some.text(), max_size=5),
)
def test_every_record_is_read_whatever_stands_beside_it(held: list[Record], others: dict[str, str]) -> None:
    """No value of another annotation hides a record, or looks like one."""
    ours = {f"gate.kurm.dev/{one.uid}": ",".join(map(str, (*one[1:4], *sorted(one.gres)))) for one in held}
    text = "\n".join(f"{key}={quoted(value)}" for key, value in sorted((others | ours).items()))
    assert start_gate.records(text) == sorted(held, key=lambda one: one.uid)


@given(some.uuids().map(str), some.text().filter(lambda text: not text[:1].isdigit()))
def test_a_record_that_cannot_be_read_is_never_nothing(uid: str, value: str) -> None:
    """The pod is known, has no job that lives, and holds everything."""
    [found] = start_gate.records(f"gate.kurm.dev/{uid}={quoted(value)}")
    assert found == Record(uid, 0, EVERYTHING, EVERYTHING, frozenset())


def systemd(above: str, uid: str) -> str:
    """Return the name by which systemd knows a pod's cgroup."""
    return f"{above}-pod{uid.replace('-', '_')}.slice"


LAYOUTS = {
    "v1": ("9:name=systemd:{own}/c1\n8:pids:{own}/c1\n0::/system.slice", "pids", "{root}/kubepods", ""),
    "v1, several in one": ("3:cpu,cpuacct:{own}/c1\n2:misc,pids:{own}/c1", "misc,pids", "{root}/kubepods", ""),
    "hybrid": ("0::{own}/c1", "unified", "{root}/kubepods", ""),
    "v2": ("0::{own}/c1/system.slice/slurmstepd.scope", ".", "{root}/kubepods", ""),
    "v2, systemd": ("0::{own}/cri-1.scope", ".", "kubepods.slice", "kubepods"),
    "v2, systemd, a root of its own": ("0::{own}/c.scope", ".", "kurm.slice/kurm-kubepods.slice", "kurm-kubepods"),
}

PIDS = ("pids.current", "7\n", "0\n")
EVENTS = ("cgroup.events", "populated 1\nfrozen 0\n", "populated 0\nfrozen 0\n")
"""The files that tell of processes, with some and with none: those of cgroup v1 and v2."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("quality", ["", "burstable", "besteffort"])
@pytest.mark.parametrize("ours", ["", "burstable"])
def test_a_pod_runs_while_its_cgroup_has_processes(tmp_path: Path, layout: str, quality: str, ours: str) -> None:
    """In every layout of cgroups, wherever the kubelet has its pods: with a process, with none, and when it is gone."""
    own, hierarchy, root, slices = LAYOUTS[layout]
    top = Path(root.format(root="kurm/gate/n1"))

    def cgroup(uid: str, kind: str) -> Path:
        if not slices:
            return top / kind / f"pod{uid}"
        above = f"{slices}-{kind}" if kind else slices
        return top / (f"{above}.slice" if kind else "") / systemd(above, uid)

    file, some_run, none_run = PIDS if "pids" in hierarchy else EVENTS

    def put(uid: str, kind: str) -> Path:
        made = tmp_path / hierarchy / cgroup(uid, kind)
        made.mkdir(parents=True, exist_ok=True)
        (made / file).write_text(some_run)
        return made

    put(OWN, ours)
    pod = put(POD, quality)
    put("b5e03999-5e54-442e-b3b6-30722bf73648", quality)
    seen = Cgroups(tmp_path, own.format(own=f"/{cgroup(OWN, ours)}"))
    assert (seen.seen, seen.running(POD, "another")) == (True, {POD})
    (pod / file).write_text(none_run)
    assert not seen.running(POD)
    (pod / file).unlink()
    pod.rmdir()
    assert not seen.running(POD)


def test_a_cluster_within_a_pod_has_its_own_pods(tmp_path: Path) -> None:
    """The innermost kubelet is ours: pods of the one around it are none of our business."""
    outer = tmp_path / "pids/kubepods" / f"pod{POD}" / "c1"
    inner = outer / "kubepods/burstable" / f"pod{OWN}" / "c2"
    inner.mkdir(parents=True)
    (inner.parent / "pids.current").write_text("1\n")
    seen = Cgroups(tmp_path, f"8:pids:/{inner.relative_to(tmp_path / 'pids')}")
    assert (seen.seen, seen.running(POD, OWN)) == (True, {OWN})


@pytest.mark.parametrize("own", ["", "0::/", "0::/kubepods/besteffort/c1", f"0::/kubepods/pod{OWN}/c1"])
def test_who_does_not_see_itself_sees_nobody(tmp_path: Path, own: str) -> None:
    """Without the node's cgroups every recorded pod counts as running."""
    assert (Cgroups(tmp_path, own).seen, Cgroups(tmp_path, own).running(POD)) == (False, {POD})


def job(
    number: int,
    name: str = "shop/web-1.b5e03999",
    user: str = "slurm(401)",
    state: str = "RUNNING",
    comment: str = "(null)",
) -> str:
    """Return scontrol's line for a job, after its prompt and its echo of the command."""
    about = f"JobId={number} JobName={name} UserId={user} GroupId=slurm(401) MCS_label=N/A QOS=normal"
    return f"scontrol: show job {number}\n{about} JobState={state} Reason=None Command=(null) Comment={comment}\n"


UNKNOWN = "slurm_load_jobs error: Invalid job id specified\n"


def test_an_answer_is_one_for_every_job() -> None:
    """Jobs that slurmctld does not know are missing; an answer with a hole is none."""
    web = Job("shop/web-1.b5e03999", "RUNNING")
    assert answered({4, 5}, Said(job(4) + "scontrol: show job 5\nscontrol: ", UNKNOWN)) == {4: web}
    assert answered({4, 5}, Said(job(4), "")) is None
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    assert answered({4}, Said("", away)) is None
    assert answered({4}, None) is None


@pytest.mark.parametrize(
    "text",
    [
        "Invalid job id specified",
        UNKNOWN.strip(),
        "x UserId=ada(1) JobState=CANCELLED",
        "x\u2028JobId=5 JobName=shop/b.1 UserId=slurm(401) QOS=normal JobState=RUNNING",
        "x\x85JobId=5 JobName=shop/b.1 UserId=slurm(401) QOS=normal JobState=RUNNING",
    ],
)
def test_what_a_tenant_writes_decides_nothing(text: str) -> None:
    """A pod's comment is its job's: neither this pod nor another is alive, or dead, or unknown by it."""
    web = Job("shop/web-1.b5e03999", "RUNNING")
    assert answered({4, 5}, Said(job(4, comment=text), UNKNOWN)) == {4: web}
    assert answered({4, 5}, Said(job(4, comment=text), "")) is None
    ended = answered({4}, Said(job(4, state="CANCELLED", comment=text), ""))
    assert ended == {4: Job("shop/web-1.b5e03999", "CANCELLED")}


@pytest.mark.parametrize("name", ["mine", "x UserId=slurm(401) JobState=RUNNING", "Invalid job id specified"])
def test_a_users_job_is_no_pods(name: str) -> None:
    """It may have the number of one that slurmctld has forgotten, and call itself what it likes."""
    assert answered({9}, Said(job(9, name, "ada(10001)"), "")) == {9: Job()}


def test_tasks_of_an_array_are_not_taken_for_one_another() -> None:
    """The number of an array's last task is that of the whole array, of which scontrol shows all."""
    told = Said(job(7, "a", "ada(10001)") + job(6, "a", "ada(10001)", "PENDING"), "")
    assert answered({7}, told) == {7: Job()}


@pytest.mark.parametrize(
    ("known", "lives"),
    [
        (Job("shop/web-1.b5e03999", "RUNNING"), True),
        (Job("shop/web-1.b5e03999", "COMPLETING"), True),
        (Job("shop/web-1.b5e03999", "SUSPENDED"), False),
        (Job("shop/web-1.b5e03999", "PENDING"), False),
        (Job("shop/web-1.b5e03999", "CANCELLED"), False),
        (Job(), False),
        (None, False),
    ],
)
def test_a_share_is_a_pods_own_while_its_job_has_resources(known: Job | None, lives: bool) -> None:  # noqa: FBT001 - a column
    """A suspended job's CPUs are sold again; a user's job that got the number of a forgotten one is none of a pod's."""
    assert alive(HELD, {9: known} if known else {}) == lives


def test_of_a_suspended_job_only_the_cpus_are_sold_again() -> None:
    """Its memory stays its own, so a job beside it waits for CPUs alone."""
    suspended = {9: Job("shop/web-1.b5e03999", "SUSPENDED")}
    assert share(HELD, suspended) == HELD._replace(memory=0)
    assert share(HELD, {}) == HELD


NODE = (
    "NodeName=n1 CPUAlloc=3 CPUEfctv=4 CPUTot=4 CPULoad=0.1 Gres=gpu:h100:8(S:0-1),fpga:1 "
    "GresUsed=gpu:h100:{gpus}(IDX:0-3),fpga:0(IDX:N/A) RealMemory=4096 AllocMem=3000 MemSpecLimit=96 State={state} "
    "OS=Linux 6.1 #1 SMP  Partitions=batch \n"
)


def test_a_node_has_left_what_slurm_has_not_given_out() -> None:
    """CPUs and memory that Slurm may give, which kinds of GRES are in use, and whether it is drained."""
    assert left_of(NODE.format(gpus=2, state="MIXED")) == Node(1, 1000, frozenset({"gpu"}), drained=False)
    assert left_of(NODE.format(gpus=0, state="MIXED+DRAIN+CLOUD")) == Node(1, 1000, frozenset(), drained=True)
    assert (left_of("Node n1 not found"), left_of(None)) == (None, None)


@pytest.mark.parametrize(
    ("cpus", "memory", "overlaps"), [(2, 2000, False), (4, 2000, False), (1, 4000, True), (4, 1999, True)]
)
def test_two_leaving_pods_hold_what_both_hold(cpus: int, memory: int, overlaps: bool) -> None:  # noqa: FBT001 - a column
    """A job starts beside them if all of it is free, and not if one more CPU or MiB was given out."""
    left = Node(cpus, memory, frozenset(), drained=False)
    assert overlap([HELD._replace(cpus=1), HELD._replace(cpus=1)], left) == overlaps


def test_a_gpu_that_is_given_out_again_is_an_overlap() -> None:
    """A pod holds all of a kind on its node: whoever has one of them now has it from the pod."""
    pod = HELD._replace(gres=frozenset({"gpu"}))
    assert [overlap([pod], Node(8, 9000, frozenset(used), drained=False)) for used in ({"gpu"}, {"fpga"})] == [
        True,
        False,
    ]


def test_a_pod_is_called_by_its_name_where_slurm_remembers_it() -> None:
    """A single pod's job has its name and UID, a gang's has the gang's; a user's job may call itself what it likes."""
    jobs = {9: Job("shop/web-1.b5e03999", "CANCELLED")}
    assert named(HELD, jobs) == f"pod shop/web-1 ({POD})"
    assert named(HELD, {9: Job("shop/train.11111111", "CANCELLED")}) == f"pod {POD} of shop/train"
    assert named(HELD, {9: Job()}) == named(HELD, {}) == f"pod {POD}"


SCONTROL = """#!/bin/sh
# Answers from files: jobs from `job-N`, the node from `node`; what is changed is appended to `done`. A file `away`
# is a slurmctld that does not answer.
cd "${0%/*}"
[ -e away ] && { echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
case "$*" in
*"show node n1") cat node;;
update*) printf '%s\\n' "$*" >>done;;
*) while read -r _ _ number; do
     if [ "$number" = 0 ]; then cat job-*
     else cat "job-$number" 2>&- || echo "slurm_load_jobs error: Invalid job id specified" >&2
     fi
   done;;
esac
"""
SQUEUE = """#!/bin/sh
# Answers for job 12 from the file `state`, and not if slurmctld is away.
cd "${0%/*}"
[ -e away ] && { echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
[ -s state ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
case " $* " in *" --jobs=12 "*"--Format=JobID:20,State:30 ") printf '%-20s%-30s\\n' 11 PENDING 12 "$(cat state)";; esac
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a node where job 12 starts: pod 9's job has ended, all CPUs are given out, and it runs."""
    for name, script in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "state").write_text("RUNNING")
    (tmp_path / "job-9").write_text(job(9, state="CANCELLED"))
    (tmp_path / "node").write_text(NODE.format(gpus=0, state="MIXED"))
    (tmp_path / "annotations").write_text(f'gate.kurm.dev/{POD}="9,2,1000"\n')
    for uid in (OWN, POD):
        (tmp_path / f"pids/kubepods/pod{uid}").mkdir(parents=True)
        (tmp_path / f"pids/kubepods/pod{uid}/pids.current").write_text("1\n")
    return tmp_path


def gate(here: Path) -> Gate:
    """Return the gate of job 12 on this node."""
    return Gate("n1", 12, here / "annotations", Cgroups(here, f"8:pids:/kubepods/pod{OWN}/c1"))


def test_a_job_waits_for_a_pod_that_leaves_and_starts_when_it_is_gone(here: Path) -> None:
    """What it waits for is said with the pod's name; nothing is drained."""
    one = gate(here)
    assert one.held()
    assert one.why == f"pod shop/web-1 ({POD}): it still runs, and its job 9 has ended"
    (here / f"pids/kubepods/pod{POD}/pids.current").write_text("0\n")
    assert (one.held(), (here / "done").exists()) == (False, False)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("job-9", job(9)),
        ("node", NODE.format(gpus=0, state="MIXED").replace("CPUAlloc=3", "CPUAlloc=2")),
        ("state", "COMPLETING"),
        ("state", ""),
        ("annotations", 'kubernetes.io/config.source="api"\n'),
    ],
    ids=["its job lives", "there is room for both", "we were cancelled", "we were forgotten", "it is not recorded"],
)
def test_a_job_that_need_not_wait_starts_at_once(here: Path, file: str, text: str) -> None:
    """Though a pod still runs."""
    (here / file).write_text(text)
    assert wait(gate(here)) == 0


def test_a_pod_of_which_no_job_is_known_has_no_share(here: Path) -> None:
    """What is written of it says no number: scontrol would show all jobs for 0, and no answer would come of that."""
    (here / "annotations").write_text(f'gate.kurm.dev/{POD}="0,1,1000"\n')
    assert wait(gate(here)) == 0  # a CPU is free
    (here / "annotations").write_text(f'gate.kurm.dev/{POD}="0,2,1000"\n')
    one = gate(here)
    assert one.held()
    assert one.why == f"pod {POD}: it still runs, and has no Slurm job"


def test_a_job_waits_while_slurmctld_is_away(here: Path) -> None:
    """Nobody knows whether the pod's job lives: unknown means busy."""
    (here / "job-9").write_text(job(9))
    (here / "away").touch()
    one = gate(here)
    assert one.held()
    assert one.why == f"pod {POD}: it still runs, and slurmctld does not say whether its job has ended"


def test_a_node_whose_pod_never_goes_is_drained_with_its_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is no `kurm: ` one: no daemon takes it away. The prolog fails, so that Slurm requeues the job."""
    assert wait(gate(here), at_most=0.1) == 1
    why = f"pod shop/web-1 ({POD}): it still runs, and its job 9 has ended"
    assert (here / "done").read_text() == f"update NodeName=n1 State=DRAIN Reason=start-gate: {why}, for 0 s\n"
    assert f"start-gate: job 12 waits for {why}\n" in capsys.readouterr().err


def test_a_reason_that_somebody_gave_is_kept(here: Path) -> None:
    """A node that is drained already is not drained once more."""
    (here / "node").write_text(NODE.format(gpus=0, state="MIXED+DRAIN"))
    assert (wait(gate(here), at_most=0.1), (here / "done").exists()) == (1, False)
