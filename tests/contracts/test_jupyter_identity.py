"""What GPUlayer takes of Jupyter's identity providers beyond their documented interface."""

from __future__ import annotations

import inspect

import pytest
from gpulayer_server import identity
from jupyter_server.auth.identity import IdentityProvider


@pytest.mark.parametrize("name", identity._NAMING)
def test_a_user_comes_from_a_method_of_this_name(name: str) -> None:
    """Where it fails a provider that names users through the method's successor would own nothing: put that into `_NAMING`."""
    assert inspect.isfunction(getattr(IdentityProvider, name, None))
