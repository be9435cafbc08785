"""What `gpulayer.pytorch` offers where torch is not installed."""

import subprocess
import sys

import gpulayer.pytorch

WITHOUT_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
import gpulayer.pytorch as gp
from gpulayer.errors import Unsupported
assert gp.is_launcher_process() is True
for name in ("Module", "Runtime", "Trainer"):
    try:
        getattr(gp, name)
    except Unsupported as error:
        assert name in str(error) and "extra [torch]" in str(error), str(error)
    else:
        raise SystemExit(f"{name} came without torch")
assert "torch" not in sys.modules
print("fine")
"""


def test_launching_needs_no_torch_and_the_rest_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_names() -> None:
    assert gpulayer.pytorch.__all__ == ["Module", "Runtime", "Trainer", "is_launcher_process", "launch"]
    assert dir(gpulayer.pytorch) == gpulayer.pytorch.__all__
    assert all(getattr(gpulayer.pytorch, name) is not None for name in gpulayer.pytorch.__all__)
