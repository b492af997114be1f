"""What an image is made from: one Containerfile and what its build may read."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kurm.local.errors import LocalError


class ImageError(LocalError):
    """An image cannot be built: one sentence that says why and what to do; `log` is the build's output, if any."""

    def __init__(self, sentence: str, log: Path | None = None) -> None:
        super().__init__(sentence if log is None else f"{sentence} (the build's output is in {log})")
        self.log = log


@dataclass(frozen=True)
class Recipe:
    """One Containerfile; all paths are relative to the repository."""

    containerfile: str
    context: str
    """The folder that COPY's paths start from."""
    inputs: tuple[str, ...]
    """Files and folders that the build sees, and nothing else; their content is in the images' tags."""
    targets: tuple[str, ...]
    version: str | None = None
    """A target with nothing but one file, which says the version of what was installed: it becomes a label."""

    def files(self, repository: Path) -> Iterator[Path]:
        """Yield each file that goes into the images, in a fixed order. Raises ImageError for one that is missing."""
        for entry in self.inputs:
            top = repository / entry
            if not top.exists():
                raise ImageError(f"{top} is missing, and {self.containerfile} needs it: is this a whole checkout?")
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path

    def digest(self, repository: Path) -> str:
        """Return a hash of all files' content, names and executable bits; their dates do not matter."""
        digest = hashlib.sha256()
        for path in self.files(repository):
            content = path.read_bytes()
            name = path.relative_to(repository).as_posix()
            digest.update(f"\0{name}\0{path.stat().st_mode & 0o111:o}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()


@dataclass(frozen=True)
class Job:
    """One image to build."""

    target: str
    recipe: Recipe
    digest: str
    """What `recipe.digest` was when the archive's name was chosen."""
    archive: Path
    references: tuple[str, ...]
    """The names that the archive holds the image under."""
