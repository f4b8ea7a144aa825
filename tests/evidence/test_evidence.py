"""The judgements of a sample of the evidence are the golden ones; `judgements.py` compares and renews all of them."""

from __future__ import annotations

import judgements
import pytest
from samples import one_in

SCRIPTS = [(name, program) for name, programs in judgements.sets().items() for program in programs()]


@pytest.mark.slow
@pytest.mark.parametrize("one", one_in(130, SCRIPTS, lambda one: f"{one[0]}/{one[1].name}"))
@pytest.mark.parametrize("mode", ["default", pytest.param("reference", marks=pytest.mark.exhaustive)])
def test_a_judgement_differs_only_where_the_golden_file_says_so(one, mode):
    name, program = one
    found = judgements.run(program, judgements.MODES[mode])
    assert not judgements.difference(judgements.read(name)[program.name][mode], found)


@pytest.mark.exhaustive
def test_the_catalogue_of_refusals_is_judged_as_before():
    golden = judgements.read("catalogue")
    differing = {
        program: lines
        for program, found in judgements.catalogue()
        if (lines := judgements.difference(golden.get(program, {}).get("default"), found))
    }
    assert not differing


def test_a_judgement_that_changed_is_shown_from_both_sides():
    before, after = {"code": "DT101", "born": 3}, {"code": "DT101", "born": 7}
    assert judgements.difference([before], [after]) == [
        '- {"code": "DT101", "born": 3}',
        '+ {"code": "DT101", "born": 7}',
    ]
    assert judgements.difference([before], [before]) == []
