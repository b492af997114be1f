"""All objects of a cluster in the order in which they are best applied: what is mounted before what mounts it."""

from kurm.domain.slurmcluster import CompanionDatabase
from kurm.domain.spec import Json
from kurm.operator.render import accounting, controller, database, login, rest, scheduler, slurmd, syncer
from kurm.operator.render.configuration import Configuration, config_map
from kurm.operator.render.pods import Cluster


def objects(cluster: Cluster, configuration: Configuration, *, database_password: str = "") -> list[Json]:
    """Return the objects of a cluster but its keys and its compute nodes.

    `database_password` is that of the user of whichever database it has; without accounting it is not used. What bears
    the cluster's labels and is not in the answer is no longer wanted. Raises SpecError, naming the field.
    """
    found = [config_map(cluster, configuration), *controller.objects(cluster, configuration.controller_hash)]
    if cluster.spec.accounting.enabled:
        place = cluster.spec.accounting.database
        if isinstance(place, CompanionDatabase):
            found += database.objects(cluster, place)
        found += accounting.objects(cluster, database_password)
    if cluster.spec.scheduler is not None:
        found += scheduler.objects(cluster, cluster.spec.scheduler)
    found += [*syncer.objects(cluster), slurmd.names_service(cluster), slurmd.budget(cluster), *login.objects(cluster)]
    return [*found, *rest.objects(cluster)] if cluster.spec.rest.enabled else found
