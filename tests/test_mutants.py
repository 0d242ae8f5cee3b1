"""Each mutant still names a protection that is there, and a test that could notice: a list that rots protects nothing.

That the named tests do turn red is shown by `make mutants`, which takes too long to run with the others.
"""

from __future__ import annotations

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_changes_one_place_and_names_a_test_that_exists(mutant: Mutant) -> None:
    file = ROOT / "src" / "outlive" / mutant.file
    assert file.is_file(), f"{mutant.file} does not exist"
    assert file.read_text().count(mutant.before) == 1, f"{mutant.file} does not have this exactly once: {mutant.before}"
    assert mutant.after != mutant.before

    where, *chosen = mutant.test.split()
    assert (ROOT / where).is_file(), f"{where} does not exist"
    if chosen:
        option, word = chosen
        assert option == "-k" and word in (ROOT / where).read_text(), f"{where} has no test named for {word}"


def test_mutants_are_told_apart_by_their_names() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
