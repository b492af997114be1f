"""The control machine: etcd, the API server, the controllers, the scheduler, and the provisioner of volumes."""

from kurm.local.layout import Layout
from kurm.local.machine import BINARIES, VOLUMES, Service
from kurm.local.pki import Authority, kubeconfig, signing_keys

ETC = "/var/lib/kubernetes"
API_SERVER_UP = "(exec 3<>/dev/tcp/127.0.0.1/6443) 2>/dev/null"

# A node that is silent for this long becomes Ready=Unknown. Kubernetes' default, 50 s, makes every test of a lost node
# a minute long; nodes renew their leases every 5 s here (node.py), so three may be missed.
NODE_MONITOR_GRACE_PERIOD = "20s"


def files(layout: Layout, authority: Authority) -> dict[str, bytes | str]:
    """Make the keys, certificates and kubeconfigs of the control plane, by the path at which it sees them."""
    server = authority.sign(
        "kube-apiserver",
        addresses=(
            *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"),
            *(layout.control.address, layout.services[1]),
        ),
    )
    private, public = signing_keys()
    kubelet_client = authority.sign("kube-apiserver-kubelet-client", groups="system:masters")
    made: dict[str, bytes | str] = {
        f"{ETC}/ca.crt": authority.pair.certificate,
        f"{ETC}/ca.key": authority.pair.key,
        f"{ETC}/apiserver.crt": server.certificate,
        f"{ETC}/apiserver.key": server.key,
        f"{ETC}/kubelet-client.crt": kubelet_client.certificate,
        f"{ETC}/kubelet-client.key": kubelet_client.key,
        f"{ETC}/service-accounts.key": private,
        f"{ETC}/service-accounts.pub": public,
    }
    for user in ("system:kube-controller-manager", "system:kube-scheduler", "kurm:volumes"):
        name = user.rpartition(":")[2]
        made[f"{ETC}/{name}.conf"] = kubeconfig(
            layout.name, layout.api_server, authority.pair.certificate, authority.sign(user)
        )
    return made


def services(layout: Layout) -> list[Service]:
    """Return the control plane's daemons. Pure."""
    return [
        _etcd(),
        _api_server(layout),
        _controller_manager(),
        _scheduler(),
        Service(
            "volumes",
            [
                f"{BINARIES}/volumes",
                f"--kubeconfig={ETC}/volumes.conf",
                f"--root={VOLUMES}",
                f"--mount={VOLUMES}",
            ],
            after=API_SERVER_UP,
        ),
    ]


def _etcd() -> Service:
    return Service(
        "etcd",
        [
            f"{BINARIES}/etcd",
            "--data-dir=/var/lib/etcd",
            # Only this machine's own network namespace reaches this address.
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            # A local cluster does not outlive a power failure of the host, so it need not wait for the disk.
            "--unsafe-no-fsync",
        ],
    )


def _api_server(layout: Layout) -> Service:
    return Service(
        "kube-apiserver",
        [
            f"{BINARIES}/kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={layout.control.address}",
            f"--service-cluster-ip-range={layout.services}",
            f"--tls-cert-file={ETC}/apiserver.crt",
            f"--tls-private-key-file={ETC}/apiserver.key",
            f"--client-ca-file={ETC}/ca.crt",
            f"--kubelet-client-certificate={ETC}/kubelet-client.crt",
            f"--kubelet-client-key={ETC}/kubelet-client.key",
            f"--kubelet-certificate-authority={ETC}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={ETC}/service-accounts.pub",
            f"--service-account-signing-key-file={ETC}/service-accounts.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",  # slurmd's pods
            # Webhooks are reached at their pods' addresses, so this machine needs no service proxy.
            "--enable-aggregator-routing",
        ],
    )


def _controller_manager() -> Service:
    conf = f"{ETC}/kube-controller-manager.conf"
    return Service(
        "kube-controller-manager",
        [
            f"{BINARIES}/kube-controller-manager",
            f"--kubeconfig={conf}",
            f"--authentication-kubeconfig={conf}",
            f"--authorization-kubeconfig={conf}",
            f"--root-ca-file={ETC}/ca.crt",
            f"--service-account-private-key-file={ETC}/service-accounts.key",
            f"--cluster-signing-cert-file={ETC}/ca.crt",
            f"--cluster-signing-key-file={ETC}/ca.key",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--node-monitor-grace-period={NODE_MONITOR_GRACE_PERIOD}",
            "--node-monitor-period=2s",
        ],
        after=API_SERVER_UP,
    )


def _scheduler() -> Service:
    conf = f"{ETC}/kube-scheduler.conf"
    return Service(
        "kube-scheduler",
        [
            f"{BINARIES}/kube-scheduler",
            f"--kubeconfig={conf}",
            f"--authentication-kubeconfig={conf}",
            f"--authorization-kubeconfig={conf}",
            "--leader-elect=false",
        ],
        after=API_SERVER_UP,
    )
