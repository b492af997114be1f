"""One node, its claim and its record, from which the stories of whose a drain is begin."""

from kurm.domain.causes import Told, of_node
from kurm.domain.noderecord import NodeRecord
from kurm.domain.world import Claim, Pod, Record, mark

FEATURES = ("nodeset:workers",)
WANTED = NodeRecord(cpus=4, real_memory=1000, gres=(), features=FEATURES, weight=1)
UP = Record(extra=mark("uid-1"), registered=True, attached=True, features=FEATURES)
POD = Pod("pod-1", ready=True, protected=True)
FAN = "fan is loud"


def claim(
    *, cordoned: bool = False, words: str = "", ready: bool = True, deadlock: bool = False, dead: str = ""
) -> Claim:
    """Return a claim on a Kubernetes node in that state."""
    conditions = {"Ready": Told(str(ready), "" if ready else "no word"), "KernelDeadlock": Told(str(deadlock), "stuck")}
    causes = of_node(
        cordoned=cordoned,
        annotations={"kurm.dev/reason": words},
        conditions=conditions,
        chosen=["KernelDeadlock"],
        dead=dead,
    )
    return Claim("uid-1", WANTED, causes=causes)
