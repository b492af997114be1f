"""What a resource asks for and nobody can render: one sentence with the field."""


class SpecError(ValueError):
    """A field of a SlurmCluster or a NodeSet that cannot be rendered. `field` is its path in the resource."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


class MissingError(SpecError):
    """An object that a field names is not there, or lacks a key: to be looked at again when it comes."""

    def __init__(self, field: str, kind: str, name: str, key: str = "") -> None:
        what = f"{kind} {name!r}"
        super().__init__(field, f"{what} has no key {key!r}" if key else f"there is no {what} in this namespace")
        self.kind, self.name, self.key = kind, name, key
