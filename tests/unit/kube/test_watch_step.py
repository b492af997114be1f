"""The watch's one transition function, edge by edge."""

import pytest

from kurm.kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    InternalError,
    KubeError,
    NotFound,
    Status,
    TooManyRequests,
    Unreachable,
)
from kurm.kube.resources import CONFIG_MAPS, ListMeta, Object, ObjectMeta, Page
from kurm.kube.watch import (
    Apply,
    Bookmarked,
    Changed,
    Delete,
    Deleted,
    Empty,
    Ended,
    Event,
    Failed,
    Init,
    InitApply,
    InitDone,
    Lines,
    Listed,
    Listing,
    Opened,
    Paged,
    State,
    Stimulus,
    Watching,
    newer,
    read,
    step,
)


def thing(version: str, name: str = "a") -> Object:
    """Return an object of this version."""
    return Object(ObjectMeta(name=name, namespace="x", uid="1", resource_version=version))


def page(*items: Object, version: str = "9", more: str = "") -> Paged[Object]:
    """Return a page of a list."""
    return Paged(Page(ListMeta(resource_version=version, continue_=more), list(items)))


A, B = thing("5", "a"), thing("7", "b")
REFUSED = Status(code=400, message="no")
UNREACHABLE = Unreachable("https://k", "refused", "it")

EDGES: list[tuple[str, State, Stimulus[Object], State, tuple[Event[Object], ...]]] = [
    (
        "one page is a whole list",
        Empty(),
        page(A, B),
        Listed("9"),
        (Init(), InitApply(A), InitApply(B), InitDone()),
    ),
    ("an empty list is told as a list too", Empty(), page(), Listed("9"), (Init(), InitDone())),
    (
        "items may be null",
        Empty(),
        Paged(Page(ListMeta(resource_version="9"), None)),
        Listed("9"),
        (Init(), InitDone()),
    ),
    ("a first page of several", Empty(), page(A, more="t"), Listing("t"), (Init(), InitApply(A))),
    ("a page in the middle", Listing("t"), page(A, more="u"), Listing("u"), (InitApply(A),)),
    ("the last page", Listing("u"), page(B), Listed("9"), (InitApply(B), InitDone())),
    ("the stream opens", Listed("9"), Opened(), Watching("9"), ()),
    ("a change", Watching("9"), Changed(thing("10")), Watching("10"), (Apply(thing("10")),)),
    ("a deletion", Watching("9"), Deleted(thing("10")), Watching("10"), (Delete(thing("10")),)),
    ("a repeated change is not told", Watching("10"), Changed(thing("10")), Watching("10"), ()),
    ("an old change does not take us back", Watching("10"), Changed(thing("9")), Watching("10"), ()),
    ("an old deletion deletes nothing", Watching("10"), Deleted(thing("9")), Watching("10"), ()),
    ("versions are numbers, not text", Watching("9"), Changed(thing("100")), Watching("100"), (Apply(thing("100")),)),
    ("a bookmark moves us on", Watching("9"), Bookmarked("12"), Watching("12"), ()),
    ("an old bookmark does not move us back", Watching("9"), Bookmarked("8"), Watching("9"), ()),
    ("the stream ends", Watching("9"), Ended(), Listed("9"), ()),
    ("a cut stream is opened where it was cut", Watching("9"), Failed(UNREACHABLE), Listed("9"), ()),
    ("a stream that cannot open keeps its place", Listed("9"), Failed(UNREACHABLE), Listed("9"), ()),
    ("a page that did not come is asked for again", Listing("t"), Failed(UNREACHABLE), Listing("t"), ()),
    ("a first page that did not come", Empty(), Failed(UNREACHABLE), Empty(), ()),
    ("410 inside the stream", Watching("9"), Failed(Gone(REFUSED)), Empty(), ()),
    ("410 at its opening", Listed("9"), Failed(Gone(REFUSED)), Empty(), ()),
    ("410 for a page's token", Listing("t"), Failed(Gone(REFUSED)), Empty(), ()),
    ("429 passes", Listed("9"), Failed(TooManyRequests(REFUSED)), Listed("9"), ()),
    ("500 at its opening passes", Listed("9"), Failed(InternalError(REFUSED)), Listed("9"), ()),
    ("500 inside the stream comes again from there", Watching("9"), Failed(InternalError(REFUSED)), Empty(), ()),
    ("403 begins again", Watching("9"), Failed(Forbidden(REFUSED)), Empty(), ()),
    ("404 begins again", Listed("9"), Failed(NotFound(REFUSED)), Empty(), ()),
]


@pytest.mark.parametrize(("story", "before", "stimulus", "after", "told"), EDGES, ids=[edge[0] for edge in EDGES])
def test_edge(
    story: str, before: State, stimulus: Stimulus[Object], after: State, told: tuple[Event[Object], ...]
) -> None:
    """Each edge leads where the table says, and tells what the table says."""
    assert (story, step(before, stimulus)) == (story, (after, told))


@pytest.mark.parametrize("error", [ApiError(REFUSED), Gone(REFUSED), UNREACHABLE, KubeError("any")])
@pytest.mark.parametrize("state", [Empty(), Listing("t"), Listed("9"), Watching("9")])
def test_a_failure_never_tells_the_consumer_anything(state: State, error: KubeError) -> None:
    """Whatever fails in whatever state, the consumer keeps what it has."""
    assert step(state, Failed(error))[1] == ()


@pytest.mark.parametrize(
    ("state", "stimulus"),
    [
        (Empty(), Opened()),
        (Listed("9"), page()),
        (Watching("9"), page()),
        (Listed("9"), Changed(A)),
        (Empty(), Ended()),
    ],
)
def test_what_cannot_happen_is_refused(state: State, stimulus: Stimulus[Object]) -> None:
    """A driver that asks the wrong thing is found at once."""
    with pytest.raises(ValueError, match="cannot come in"):
        step(state, stimulus)


@pytest.mark.parametrize(
    ("version", "known", "expected"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("b", "a", True), ("a", "a", False), ("1", "", True)],
)
def test_newer(version: str, known: str, *, expected: bool) -> None:
    """Numbers are compared as numbers; anything else that differs counts as newer."""
    assert newer(version, known) is expected


def test_read_tells_the_kinds_of_line_apart() -> None:
    """Each type of line is its own stimulus; a 410 inside the stream is the same Gone as the HTTP status."""
    metadata = b'{"metadata":{"name":"a","namespace":"x","uid":"1","resourceVersion":"5"}}'
    expected = {b"ADDED": Changed(A), b"MODIFIED": Changed(A), b"DELETED": Deleted(A), b"BOOKMARK": Bookmarked("5")}
    found = {kind: read(CONFIG_MAPS, b'{"type":"%s","object":%s}' % (kind, metadata)) for kind in expected}
    assert found == expected
    failed = read(CONFIG_MAPS, b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}')
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Gone)


def test_lines_of_any_length_from_chunks_of_any_size() -> None:
    """However the bytes are cut, the same lines come out; half a line at the end does not."""
    whole = b"a\n" + b"b" * 3_000_000 + b"\n\nc\nhalf"
    expected = [b"a", b"b" * 3_000_000, b"c"]
    for size in (1000, 65_536, len(whole)):
        cut = Lines()
        assert [line for at in range(0, len(whole), size) for line in cut.feed(whole[at : at + size])] == expected
