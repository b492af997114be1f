"""What the scheduler measures of itself, for Prometheus: names begin with `kurm_scheduler_`, seconds, bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kurm.kube.traffic import Traffic as KubeTraffic
from kurm.slurm.traffic import Traffic

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
Gauges = Mapping[str, tuple[str, Callable[[], Mapping[str, float]]]]
"""By name: what it tells, and a function to its values by the value of its one label."""


class Metrics:
    """One process's. What can be read off at any time is read as Prometheus asks (`watch`), the rest is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.to_bound = Histogram(
            "kurm_scheduler_pod_bound_seconds",
            "From the first sight of a pod to its binding, by whether it had to wait in Slurm's queue",
            ["way"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.steps = Counter(
            "kurm_scheduler_steps", "What was done for allocations, by kind", ["kind"], registry=self.registry
        )
        self.failures = Counter(
            "kurm_scheduler_failures", "Steps that failed, by side and error", ["side", "error"], registry=self.registry
        )
        self.told = Counter("kurm_scheduler_conditions", "Writes of waiting pods' conditions", registry=self.registry)
        self.ended = Counter(
            "kurm_scheduler_pods_ended",
            "Pods ended with their Slurm job, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.recovered = Histogram(
            "kurm_scheduler_recovery_seconds",
            "From the sight of a new life of slurmctld until all that is bound was pinned",
            buckets=SECONDS,
            registry=self.registry,
        )

    def watch(self, slurm: Traffic, kube: KubeTraffic, gauges: Gauges) -> None:
        """Tell these, too, whenever they are asked for: what was exchanged with slurmrestd and with the API server."""
        self.registry.register(_Reading(slurm, kube, gauges))

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)


class _Reading(Collector):
    """Reads what is counted elsewhere."""

    def __init__(self, slurm: Traffic, kube: KubeTraffic, gauges: Gauges) -> None:
        self._slurm, self._kube, self._gauges = slurm, kube, gauges

    def describe(self) -> Iterable[Metric]:
        return ()  # names are told by collect; a registry would call it here otherwise, before there is anything

    def collect(self) -> Iterator[Metric]:
        for name, (about, values) in self._gauges.items():
            gauge = GaugeMetricFamily(f"kurm_scheduler_{name}", about, labels=["of"])
            for label, value in values().items():
                gauge.add_metric([label], value)
            yield gauge
        calls = CounterMetricFamily("kurm_scheduler_slurm_calls", "Requests to slurmrestd", labels=["route"])
        for route, count in self._slurm.calls.items():
            calls.add_metric([route], count)
        yield calls
        failures = CounterMetricFamily(
            "kurm_scheduler_slurm_failures", "Requests to slurmrestd that failed", labels=["route", "error"]
        )
        for (route, error), count in self._slurm.failures.items():
            failures.add_metric([route, error], count)
        yield failures
        yield _exchanged("slurm", "slurmrestd", self._slurm)
        asked = CounterMetricFamily("kurm_scheduler_kube_calls", "Requests to the API server", labels=["method"])
        for method, count in self._kube.calls.items():
            asked.add_metric([method], count)
        yield asked
        yield _exchanged("kube", "the API server", self._kube)
        yield CounterMetricFamily(
            "kurm_scheduler_slurm_wait_seconds", "Time waited for slurmrestd", value=self._slurm.seconds
        )


def _exchanged(side: str, whom: str, traffic: Traffic | KubeTraffic) -> Metric:
    family = CounterMetricFamily(f"kurm_scheduler_{side}_bytes", f"Bodies exchanged with {whom}", labels=["way"])
    family.add_metric(["sent"], traffic.sent)
    family.add_metric(["received"], traffic.received)
    return family
