"""Sets of nodes as bits."""

from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.nodemask import Answers, Roster, of_places, places


@given(st.sets(st.integers(0, 300)))
def test_places_and_masks_are_two_ways_to_say_the_same(found: set[int]) -> None:
    """Few places are put together otherwise than many."""
    assert set(places(of_places(found))) == found


def test_a_place_is_given_on() -> None:
    """And then masks of before mean another node, which `epoch` tells."""
    roster = Roster()
    assert [roster.add(name) for name in ("a", "b", "a")] == [0, 1, 0]
    epoch = roster.epoch
    roster.drop("a")
    assert (roster.names(roster.all), roster.name(0), roster.place("a")) == (("b",), "", None)
    assert (roster.add("c"), roster.epoch > epoch) == (0, True)
    assert (roster.names(0b11), roster.mask(["c", "a"])) == (("c", "b"), 0b01)


def test_names_of_many_places_are_in_the_order_of_places() -> None:
    """Of few as of many, and of some of them."""
    roster = Roster()
    names = tuple(f"n{number}" for number in range(500))
    for name in names:
        roster.add(name)
    assert roster.names(roster.all) == names
    assert roster.names(roster.all, 3) == names[:3]
    assert roster.names(0b1010) == ("n1", "n3")


SIZES = st.dictionaries(st.integers(0, 9), st.integers(0, 5), min_size=1)


@given(start=SIZES, steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_answers_are_what_asking_every_node_would_say(start: dict[int, int], steps: list[tuple[int, int, int]]) -> None:
    """Whenever a question is asked, and however many others were remembered or forgotten meanwhile."""
    sizes = dict(start)

    def fitting(least: int) -> list[int]:
        return [place for place, size in sizes.items() if size >= least]

    answers: Answers[int] = Answers(lambda least, place: sizes.get(place, -1) >= least, fitting, most=3, journal=4)
    for place, size, question in steps:
        before, sizes[place] = sizes.get(place, -1), size
        if size > before:
            answers.rose(place)
        elif size < before:
            answers.fell(place)
        assert answers.of(question) == of_places(fitting(question))


def test_what_was_denied_holds_again_once_the_node_has_more() -> None:
    """A fall alone does not bring it back, though it would still fit."""
    sizes = {0: 5, 1: 5}
    answers: Answers[int] = Answers(
        lambda least, place: sizes[place] >= least, lambda least: [at for at, size in sizes.items() if size >= least]
    )
    answers.deny(2, 0b11)
    sizes[0] = 4
    answers.fell(0)
    assert (answers.of(2), answers.of(1)) == (0, 0b11)
    sizes[0] = 5
    answers.rose(0)
    assert answers.of(2) == 0b01
    answers.clear()
    assert answers.of(2) == 0b11


def test_a_question_that_was_not_asked_for_long_is_asked_of_all_nodes() -> None:
    """What has changed meanwhile is no longer written down."""
    sizes = dict.fromkeys(range(9), 1)
    answers: Answers[int] = Answers(
        lambda least, place: sizes[place] >= least,
        lambda least: [at for at, size in sizes.items() if size >= least],
        journal=2,
    )
    assert answers.of(2) == 0
    for place in range(9):
        sizes[place] = 2
        answers.rose(place)
    assert answers.of(2) == 0b111111111
