"""Configuration files as Slurm itself reads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.slurm.conftest import opened
from integration.slurm.lab import CONF, Lab, LabError
from kurm.slurm import changes, cluster, conf, owned
from kurm.slurm.changes import Step
from kurm.slurm.conf import ConfError, Setting


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a cluster whose configuration the tests here change."""
    with Lab(tmp_path_factory.mktemp("slurm")).run() as running:
        yield running


def show(lab: Lab, key: str, text: str) -> str:
    """Return what Slurm makes of a key in a slurm.conf of this text; LabError if it refuses the file."""
    lab.write_conf(text)
    lab.command("scontrol", "reconfigure")
    shown = lab.command("scontrol", "show", "config")
    return next(line.partition("=")[2].strip() for line in shown.splitlines() if line.split()[:1] == [key])


@pytest.mark.parametrize(
    "text",
    [
        'MailDomain = "a b"',
        "maildomain=x#y",
        "MailDomain=x\\#y",
        "MailDomain=x\\\\y",
        "MailDomain=one\nMailDomain=two",
        "MailDomain=\\\nabc\\\ndef",
        "MailDomain=abc\\   # why\ndef",
        'MailDomain="a"b"',
        'MailDomain="abc',
        "MailDomain=abc # comment \\",
        "MailDomain=last\\",
    ],
)
def test_both_read_the_same_value(lab: Lab, text: str) -> None:
    """Quotes, escapes, comments, continuations and repeats; and once more as we write it."""
    parsed = conf.parse(text)
    assert parsed.get("MailDomain") == show(lab, "MailDomain", f"{CONF}{text}\n")
    assert parsed.get("MailDomain") == show(lab, "MailDomain", CONF + conf.render(parsed))


@pytest.mark.parametrize(
    "text", ["MailDomain", "MailDomain=", "MailDomain=a b", "MailDomain=a JobRequeue=1", "  Include /dev/null", "=a"]
)
def test_both_refuse_the_same_line(lab: Lab, text: str) -> None:
    """What our parser takes for an error is one to Slurm."""
    with pytest.raises(LabError, match="fatal: Unable to process configuration file"):
        show(lab, "MailDomain", f"{CONF}{text}\n")
    with pytest.raises(ConfError):
        conf.parse(text)


def test_every_key_that_we_own_exists(lab: Lab) -> None:
    """A misspelt key would protect nothing. Slurm names the first key of a file that it does not know."""
    unknown = []
    for key in {*owned.OWNED, *owned.REFUSED, *owned.LISTS} - {"Include"}:
        try:
            show(lab, "ClusterName", f"{key}=1\n")
        except LabError as error:
            if "unrecognized key" in str(error):
                unknown.append(key)
    assert unknown == []


CHANGES = [
    ("SchedulerParameters", "bf_interval=7", ["bf_interval=7"]),
    ("SelectTypeParameters", "CR_CPU_Memory", ["CR_CPU_MEMORY"]),
    ("MaxNodeCount", "20000", 20000),
    ("PriorityType", "priority/basic", "priority/basic"),
    ("JobAcctGatherType", "jobacct_gather/linux", "jobacct_gather/linux"),
    ("ProctrackType", "proctrack/pgid", "proctrack/pgid"),
    ("MessageTimeout", "33", 33),
    ("PrologFlags", "Contain", ["Alloc", "Contain"]),
    ("SlurmctldParameters", "idle_on_node_suspend", ["idle_on_node_suspend"]),
]


@pytest.mark.parametrize(("key", "value", "expected"), CHANGES)
async def test_a_reconfigure_brings_these_into_force(lab: Lab, key: str, value: str, expected: object) -> None:
    """What the table says needs no restart is in force after a reconfigure."""
    old = conf.parse(CONF)
    kept = conf.Conf(tuple(line for line in old.lines if not (isinstance(line, Setting) and line.key == key)))
    new = conf.render(owned.merge(kept, conf.Conf((Setting(key, value),))))
    assert changes.needed(changes.changes({"slurm.conf": CONF}, {"slurm.conf": new})) == Step.RECONFIGURE
    lab.write_conf(new)
    async with opened(lab) as slurm:
        await cluster.reconfigure(slurm)
        assert (await cluster.get_settings(slurm))[key] == expected


async def test_a_port_needs_a_restart(lab: Lab) -> None:
    """A reconfigure leaves slurmctld on its old port, where a reader of the new file finds nobody."""
    new = CONF + "SlurmctldPort=7777\n"
    found = changes.changes({"slurm.conf": CONF}, {"slurm.conf": new})
    assert changes.needed(found) == Step.RESTART_SLURMCTLD
    lab.write_conf(new)
    async with opened(lab) as slurm:
        await cluster.reconfigure(slurm)
    assert ":7777" not in listeners(lab)
    lab.stop_controller()
    lab.start_controller()
    assert ":7777" in listeners(lab)


def listeners(lab: Lab) -> str:
    """Return the TCP ports that somebody in the lab listens on, as `:port` words."""
    (init, *_) = lab.pids("tini")
    lines = Path(f"/proc/{init}/net/tcp").read_text().splitlines()[1:]
    ports = (line.split()[1].partition(":")[2] for line in lines if line.split()[3] == "0A")
    return " ".join(f":{int(port, 16)}" for port in ports)
