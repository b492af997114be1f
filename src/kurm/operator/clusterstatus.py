"""What a SlurmCluster's status says, from its components as they are. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kurm.domain.slurmcluster import (
    CompanionDatabase,
    ComponentStatus,
    NodeCounts,
    SlurmClusterCondition,
    SlurmClusterSpec,
    SlurmClusterStatus,
)
from kurm.domain.spec import Condition
from kurm.operator import conditions, podtrouble
from kurm.operator.conditions import MESSAGE, Trouble
from kurm.operator.objects import REVISION, Pod, Service, Workload
from kurm.operator.render.names import Part

SSH_PORT = 22
NO_NODES = NodeCounts()
_AVAILABLE, _CONFIGURED = SlurmClusterCondition.AVAILABLE, SlurmClusterCondition.CONFIGURED


@dataclass(frozen=True)
class Component:
    """One component as Kubernetes has it."""

    part: Part
    desired: int
    workload: Workload | None
    """None while there is none."""
    pods: Sequence[Pod]

    @property
    def ready(self) -> int:
        """How many of its pods answer."""
        return sum(pod.ready for pod in self.pods)

    @property
    def rolled_out(self) -> bool:
        """Whether its pods are those of the newest template, and no others."""
        if self.workload is None:
            return False
        status = self.workload.status
        current = status.observed_generation >= self.workload.metadata.generation
        return current and status.updated_replicas == status.replicas == self.desired

    @property
    def trouble(self) -> Trouble | None:
        """What keeps it from being whole."""
        if self.ready < self.desired or not self.rolled_out:
            found = podtrouble.trouble(self.pods, self.workload)
            if found.reason == podtrouble.NO_POD and self.ready >= self.desired:
                return Trouble("RollingOut", f"{self.part} is being brought up to date", stuck=False)
            return found
        return None


@dataclass(frozen=True)
class Facts:
    """All that a status is made of."""

    generation: int
    held: SlurmClusterStatus
    components: Sequence[Component]
    configuration: str = ""
    """The hash of what slurmctld is to run with; empty if it cannot be rendered."""
    troubles: Sequence[Trouble] = ()
    """What kept the operator from bringing about what is asked for."""
    notes: Sequence[str] = ()
    """What is not as it was asked for, and nothing comes of it."""
    nodes: NodeCounts = NO_NODES
    login_address: str = ""


def desired(spec: SlurmClusterSpec) -> dict[Part, int]:
    """Return how many pods each component is to have."""
    accounting = spec.accounting
    companion = accounting.enabled and isinstance(accounting.database, CompanionDatabase)
    wanted = {
        Part.CONTROLLER: 1,
        Part.ACCOUNTING: 1 if accounting.enabled else None,
        Part.DATABASE: 1 if companion else None,
        Part.LOGIN: spec.login.replicas,
        Part.REST: 1 if spec.rest.enabled else None,
        Part.SYNCER: 1,
        Part.SCHEDULER: 1 if spec.scheduler is not None else None,
    }
    return {part: number for part, number in wanted.items() if number is not None}


def kind_of(part: Part) -> str:
    """Return what kind of workload a component is."""
    return "StatefulSet" if part in {Part.CONTROLLER, Part.DATABASE} else "Deployment"


def stuck(component: Component) -> list[Pod]:
    """Return the pods of an outdated template that never became ready, or are no longer.

    A StatefulSet waits for such a pod before it makes the next one, for ever (Kubernetes, "Forced rollback").
    """
    workload = component.workload
    if workload is None or workload.status.observed_generation < workload.metadata.generation:
        return []
    newest = workload.status.update_revision
    return [
        pod
        for pod in component.pods
        if newest and not pod.going and not pod.ready and pod.metadata.labels.get(REVISION) not in {None, newest}
    ]


def judge(facts: Facts, now: datetime) -> SlurmClusterStatus:
    """Return our part of the status: what the syncer says of the configuration is not in it."""
    generation, held = facts.generation, facts.held.conditions
    trouble = next(iter(_troubles(facts)), None)
    return SlurmClusterStatus(
        observed_generation=generation,
        conditions=(
            _available(facts, now),
            *conditions.progress(
                held, SlurmClusterCondition, trouble, note="; ".join(facts.notes), generation=generation, now=now
            ),
        ),
        nodes=facts.nodes,
        components=tuple(_component(one) for one in facts.components),
        login_address=facts.login_address,
    )


def manifest(status: SlurmClusterStatus) -> dict[str, Any]:
    """Return our part of a status as it is applied: figures also where they are zero."""
    return {
        "observedGeneration": status.observed_generation,
        "conditions": conditions.manifest(status.conditions),
        "nodes": {"total": status.nodes.total, "ready": status.nodes.ready},
        "components": [
            {"name": one.name, "desired": one.desired, "ready": one.ready, "message": one.message}
            for one in status.components
        ],
        "loginAddress": status.login_address,
    }


def differs(held: SlurmClusterStatus, wanted: SlurmClusterStatus) -> bool:
    """Whether a status says something else than ours."""
    return _ours(held) != _ours(wanted)


def login_address(service: Service | None, pods: Iterable[Pod]) -> str:
    """Return where ssh finds the login nodes, as HOST or HOST:PORT; empty while there is no such place."""
    if service is None or not service.spec.ports:
        return ""
    spec, port = service.spec, service.spec.ports[0]
    if spec.type == "LoadBalancer":
        found = service.status.load_balancer.ingress
        return _address(found[0].hostname or found[0].ip, port.port) if found else ""
    if spec.type == "NodePort":
        hosts = sorted(pod.status.host_ip for pod in pods if pod.ready and pod.status.host_ip)
        return _address(hosts[0], port.node_port) if hosts else ""
    return _address(spec.cluster_ip, port.port)


def _address(host: str, port: int) -> str:
    if not host or not port or host == "None":
        return ""
    return host if port == SSH_PORT else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _troubles(facts: Facts) -> list[Trouble]:
    """Return all that keeps the cluster from being whole: what needs a person first."""
    found = [*facts.troubles]
    found += [one.trouble for one in facts.components if one.trouble is not None]
    if (told := _configuration(facts)) is not None:
        found.append(told)
    return sorted(found, key=lambda one: not one.stuck)


def _configuration(facts: Facts) -> Trouble | None:
    """Return what keeps the newest configuration from being in force, by the syncer's account."""
    held, wanted = facts.held, facts.configuration
    if not wanted or held.config_hash == wanted:
        return None
    if held.config_refused is not None and held.config_refused.hash == wanted:
        return Trouble("ConfigurationRefused", held.config_refused.message or "slurmctld refused the configuration")
    return Trouble("Configuring", "slurmctld has not yet taken the newest configuration", stuck=False)


def _available(facts: Facts, now: datetime) -> Condition:
    controller = next((one for one in facts.components if one.part is Part.CONTROLLER), None)
    reason, message, answers = "NoPod", "slurmctld has no pod yet", False
    if controller is not None and controller.ready:
        reason, message, answers = "Answers", "", True
    elif controller is not None:
        why = podtrouble.trouble(controller.pods, controller.workload)
        refused = next((one for one in facts.troubles if not controller.pods), None)
        reason, message = (why.reason, why.message) if refused is None else (refused.reason, refused.message)
    return conditions.condition(
        facts.held.conditions, _AVAILABLE, answers, reason, message, generation=facts.generation, now=now
    )


def _component(one: Component) -> ComponentStatus:
    trouble = one.trouble
    return ComponentStatus(one.part.value, one.desired, one.ready, trouble.message[:MESSAGE] if trouble else "")


def _ours(status: SlurmClusterStatus) -> SlurmClusterStatus:
    kept = sorted((one for one in status.conditions if one.type != _CONFIGURED.value), key=lambda one: one.type)
    components = tuple(sorted(status.components, key=lambda one: one.name))
    return msgspec.structs.replace(
        status, conditions=tuple(kept), components=components, config_hash="", config_refused=None, version=""
    )
