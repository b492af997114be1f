"""slurmctld, slurmdbd and the database, started in the wrong order, and configurations that only slurmdbd can judge."""

from integration.images.machine import Machine

ACCOUNTING = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=127.0.0.1",
    "AccountingStoragePort=6820",
    "GresTypes=gpu",
    "AccountingStorageTRES=gres/gpu",
    "AccountingStorageEnforce=associations,limits,qos",
)


def test_a_cluster_with_accounting_comes_up_in_any_order(machine: Machine) -> None:
    """Each waits: slurmctld for slurmdbd, that for its database, and says so.

    Then a partition with a QOS is taken, though the trial does not speak to slurmdbd, and one with a QOS that does not
    exist is refused, by slurmctld itself; it runs on with the one before.
    """
    machine.project("h2", machine.extended(*ACCOUNTING))
    machine.start_slurmctld()
    retries = "error: Retrying initial connection to slurmdbd"
    machine.until([retries], lambda: [line for line in machine.lines("slurmctld") if line == retries][:1])
    assert machine.told() == {"hash": "", "refused": "", "words": ""}
    machine.start_slurmdbd()
    said = "slurmdbd-start: waiting for the database at 127.0.0.1:3306"
    machine.until([said], lambda: machine.lines("slurmdbd")[:1])
    machine.start_mariadb()
    machine.until({"hash": "h2", "refused": "", "words": ""}, machine.told)

    # slurmctld ends at once, for ever, where it was killed before its first save of everything.
    machine.kill_controller()
    machine.start_slurmctld()
    machine.until({"hash": "h2", "refused": "", "words": ""}, machine.told)
    said = "slurmctld-init: slurmctld was ended before it had saved all of its state: it starts with what there is"
    assert [line for line in machine.lines("slurmctld") if "all of its state" in line] == [said]

    machine.slurm("sacctmgr", "--immediate", "add", "qos", "gold")
    machine.project("h3", machine.extended(*ACCOUNTING, "PartitionName=paid Nodes=ALL QOS=gold"))
    machine.until({"hash": "h3", "refused": "", "words": ""}, machine.told, seconds=20)
    machine.project("h4", machine.extended(*ACCOUNTING, "PartitionName=odd Nodes=ALL QOS=nosuch"))
    words = "fatal: Partition odd has an invalid qos (nosuch), please check your configuration"
    machine.until({"hash": "h3", "refused": "h4", "words": words}, machine.told, seconds=20)
    machine.until("main*\npaid\n", lambda: machine.slurm("sinfo", "-h", "-o", "%P"))
    machine.project("h5", machine.extended(*ACCOUNTING, "Nonsense=1"))
    machine.until("h5", lambda: machine.told()["refused"], seconds=30)
    assert "unrecognized key: Nonsense" in machine.told()["words"]
    registered = machine.slurm("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster,ControlPort")
    assert registered == "lab|6817\n"

    machine.kill_controller()
    machine.start_slurmctld()
    machine.until(("h3", "h5"), lambda: (machine.told()["hash"], machine.told()["refused"]))
