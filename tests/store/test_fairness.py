"""Which runs a claim takes when there is not room for all of them."""

from outlive.store.fairness import Standing, fair

Runs = list[tuple[str, int, int]]


def taken(limit: int, ways: dict[str, Runs], turn: int = 0) -> list[str]:
    """Names of those that are taken; each has its name, its priority, and since when it is due."""
    found = [(way, one) for way, runs in ways.items() for one in runs]
    return [one[0] for one in fair(found, lambda one: Standing("t", *one), limit=limit, turn=turn)]


def backlog(name: str, count: int, *, since: int, priority: int = 0) -> Runs:
    return [(f"{name}{number:03}", priority, since + number) for number in range(count)]


def test_what_fits_is_taken_by_urgency_and_age() -> None:
    ways = {"ready": [("old", 0, 1), ("urgent", 5, 9)], "timer": [("between", 0, 5)]}
    assert taken(3, ways) == ["urgent", "old", "between"]


def test_a_backlog_of_timers_does_not_keep_new_starts_waiting_and_the_other_way_round() -> None:
    starts = {"ready": backlog("start", 2, since=900), "timer": backlog("timer", 100, since=0)}
    timers = {"ready": backlog("start", 100, since=0), "timer": backlog("timer", 1, since=900)}
    for turn in range(4):
        assert {"start000", "start001"} <= set(taken(4, starts, turn))
        assert "timer000" in taken(4, timers, turn)


def test_where_there_is_room_for_one_the_ways_take_turns() -> None:
    ways = {name: backlog(name, 9, since=start) for name, start in (("ready", 900), ("timer", 0), ("lapse", 500))}
    assert sorted(taken(1, ways, turn)[0] for turn in range(3)) == ["lapse000", "ready000", "timer000"]


def test_of_each_way_the_longest_due_is_taken() -> None:
    ways = {"ready": backlog("start", 9, since=900), "timer": backlog("timer", 9, since=0)}
    assert taken(5, ways, 0) == ["timer000", "timer001", "start000", "start001", "start002"]
    assert taken(5, ways, 1) == ["timer000", "timer001", "timer002", "start000", "start001"]


def test_urgency_comes_before_fairness() -> None:
    ways = {"ready": backlog("start", 9, since=0), "timer": backlog("urgent", 9, since=900, priority=1)}
    assert taken(9, ways) == [f"urgent{number:03}" for number in range(9)]
    assert taken(10, ways)[-1] == "start000"


def test_a_run_that_is_claimable_in_two_ways_is_taken_once_by_the_older() -> None:
    ways = {"timer": [("both", 0, 5), ("other", 0, 3)], "message": [("both", 0, 1)]}
    assert taken(9, ways) == ["both", "other"]
