"""Users of `spec.login.users`: the files of libnss-extrausers on login and compute nodes, and their public keys.

Names and groups travel with Slurm's credentials, so slurmctld needs none of this.
"""

from collections.abc import Iterable

from kurm.domain.slurmcluster import User
from kurm.domain.spec import Json
from kurm.operator.render import names
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster, metadata

FOLDER = "/var/lib/extrausers"
"""Where libnss-extrausers looks, behind /etc/passwd (its README)."""


def users(cluster: Cluster) -> Json:
    """Return the ConfigMap with passwd, group and shadow. Passwords are `*`: nobody can type it, and it locks none."""
    people = sorted(cluster.spec.login.users, key=lambda user: user.uid)
    return _config_map(
        cluster,
        names.users(cluster.name),
        {
            "passwd": _lines(
                f"{user.name}:x:{user.uid}:{user.group}:{user.name}:/home/{user.name}:{user.shell}" for user in people
            ),
            "group": _lines(f"{name}:x:{number}:" for number, name in sorted(groups(people).items())),
            "shadow": _lines(f"{user.name}:*:19000:0:99999:7:::" for user in people),
        },
    )


def authorized_keys(cluster: Cluster) -> Json:
    """Return the ConfigMap with a file of public keys for each user who has any."""
    content = {user.name: _lines(user.ssh_keys) for user in cluster.spec.login.users if user.ssh_keys}
    return _config_map(cluster, names.authorized_keys(cluster.name), content)


def groups(people: Iterable[User]) -> dict[int, str]:
    """Return the name of each group by its number: that of the user with the same number, else `group1234`."""
    users_by_number = {user.uid: user.name for user in people}
    return {user.group: users_by_number.get(user.group, f"group{user.group}") for user in people}


def volume(cluster: Cluster) -> tuple[Json, Json]:
    """Return the volume with the users and its mount; a whole folder, because a single file would never change."""
    return (
        {"name": "users", "configMap": {"name": names.users(cluster.name), "defaultMode": 0o444}},
        {"name": "users", "mountPath": FOLDER, "readOnly": True},
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _config_map(cluster: Cluster, name: str, data: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(cluster, Part.LOGIN, name), "data": data}
