"""Student's t against SciPy's."""

import pytest
from scipy.special import stdtrit

from nvmesim.measure.steady import two_sided


@pytest.mark.parametrize("share", [0.7, 0.9, 0.95, 0.999])
def test_as_scipy(share):
    for freedom in [*range(1, 40), 99, 1023]:
        assert two_sided(freedom, share) == pytest.approx(stdtrit(freedom, (1 + share) / 2), 1e-12)
