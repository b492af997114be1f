"""Claims for volumes as the API server lets them be changed: they grow, and nothing else of them changes. Pure."""

from kurm.domain.noderecord import quantity
from kurm.domain.spec import Json
from kurm.operator.objects import VolumeClaim


def satisfied(manifest: Json, held: VolumeClaim) -> bool:
    """Whether a claim is as it would be applied.

    It is not applied then: the second apply of a claim makes the API server store it once more, though nothing of it
    changes (seen with Kubernetes 1.36), and a chart that is applied again shall change nothing.
    """
    metadata, wanted = manifest["metadata"], manifest["spec"]["resources"]["requests"]["storage"]
    owners = {one["uid"] for one in metadata.get("ownerReferences", [])}
    return (
        quantity(wanted) == quantity(held.spec.resources.requests.get("storage", "0"))
        and metadata["labels"].items() <= held.metadata.labels.items()
        and owners == {one.uid for one in held.metadata.owner_references}
    )


def fitted(manifest: Json, held: VolumeClaim | None) -> tuple[Json, str]:
    """Return the manifest as it can be applied onto a claim, and a sentence if it is not what was asked for.

    A claim that outlived an earlier cluster may be larger than what is asked for, and of another class.
    """
    if held is None:
        return manifest, ""
    spec, name = manifest["spec"], held.metadata.name
    note = ""
    wanted, has = spec["resources"]["requests"]["storage"], held.spec.resources.requests.get("storage", "0")
    if quantity(wanted) < quantity(has):
        spec = spec | {"resources": {"requests": {"storage": has}}}
        note = f"PersistentVolumeClaim {name} has {has} and cannot shrink to {wanted}: it stays as it is"
    if spec.get("storageClassName", held.spec.storage_class_name) != held.spec.storage_class_name:
        note = (
            f"PersistentVolumeClaim {name} is of class {held.spec.storage_class_name!r} and cannot become one of class "
            f"{spec['storageClassName']!r}: it stays as it is"
        )
        spec = spec | {"storageClassName": held.spec.storage_class_name}
    return manifest | {"spec": spec}, note
