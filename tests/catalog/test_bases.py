"""Every number of the catalog says how far to trust it."""

import pytest

from nvmesim.catalog.load import get, names, quantities, with_state

KINDS = ("drive", "cpu", "stack", "raid-engine")


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in KINDS for n in names(k)])
def test_what_was_measured_or_fitted_has_a_range(kind, name):
    profile = get(kind, name)
    states = [profile]
    if kind == "drive" and profile.fresh:
        states.append(with_state(profile, "fresh"))
    for state in states:
        for key, quantity in quantities(state):
            if quantity.basis in ("measured", "fitted"):
                assert quantity.low is not None, f"{name}: {key} is {quantity.basis} without range"
                assert quantity.high is not None
                assert quantity.low <= quantity.value <= quantity.high, f"{name}: {key}"
