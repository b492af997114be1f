"""Equal parts of many objects are kept once.

Pods of one Deployment have the same containers, labels and conditions. With their equal parts shared, 20,000 pods take
a fraction of the memory; docs/design/kubernetes-runtime.md has the figures.
"""

from typing import Any

import msgspec
from msgspec.structs import force_setattr

# Parts that are remembered, in two generations of this size; those that come again stay. Bounded, because what differs
# in every object (an annotation with a checksum) would otherwise fill the memory that sharing is to save: with 4096 it
# did, 20 MB in the scheduler, each of whose pods bears its job. 512 is the templates of a busy cluster.
GENERATION = 512

_CONTAINERS = frozenset({dict, tuple, list})

_encode = msgspec.json.Encoder().encode


class Parts:
    """Remembers the parts of objects that came lately, so that the next equal one can be dropped for it."""

    def __init__(self, generation: int = GENERATION) -> None:
        self._generation = generation
        self._young: dict[tuple[type, str, bytes], Any] = {}
        self._old: dict[tuple[type, str, bytes], Any] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def share(self, obj: msgspec.Struct) -> None:
        """Replace the containers of an object, and of its metadata, spec and status, by equal ones that came before.

        Only for an object that nobody else has seen yet: it is frozen for everybody, and changed here all the same.
        """
        for name in obj.__struct_fields__:
            value = getattr(obj, name)
            if isinstance(value, msgspec.Struct):
                for inner in value.__struct_fields__:
                    part = getattr(value, inner)
                    if part and type(part) in _CONTAINERS:
                        self._swap(value, inner, part)
            elif value and type(value) in _CONTAINERS:
                self._swap(obj, name, value)

    def _swap(self, owner: msgspec.Struct, name: str, part: Any) -> None:
        # The owner's type and the field belong to the key: parts of different types may be written in the same bytes.
        key = (type(owner), name, _encode(part))
        known = self._young.get(key)
        if known is None:
            known = self._old.get(key, part)
            self._remember(key, known)
        if known is not part:
            force_setattr(owner, name, known)

    def _remember(self, key: tuple[type, str, bytes], value: Any) -> None:
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, {}
        self._young[key] = value
