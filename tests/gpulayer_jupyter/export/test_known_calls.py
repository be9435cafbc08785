"""Which single calls are known to reach outside the process, and which look like it and do not."""

from __future__ import annotations

import ast

import pytest
from gpulayer_jupyter.export.known_calls import NETWORK, STARTS, WRITES
from gpulayer_jupyter.export.module_bodies import Sources
from gpulayer_jupyter.export.outside_acts import OutsideActs


def _kinds(source: str) -> list[str]:
    reader = OutsideActs(Sources({}))
    return [act.kind for statement in ast.parse(source).body for act in reader.run(statement)]


@pytest.mark.parametrize(
    "source",
    [
        "open('x', 'w')",
        "open('x', mode='ab')",
        "open('x', 'r+')",
        "import builtins\nbuiltins.open('x', 'w')",
        "import rasterio\nrasterio.open('x', 'w', driver='GTiff')",
        "from paths import LOG\nLOG.open('w')",
        "MODE = 'w'\nopen('x', MODE)",
        "with open('x', 'w') as f:\n    f.write('a')",
        "from pathlib import Path\nPath('x').write_text('a')",
        "from pathlib import Path\nout = Path('x')\nout.mkdir()",
        "from pathlib import Path\nPath('x').open('w')",
        "import gzip\ngzip.open('x', 'wt')",
        "import tarfile\ntarfile.open('x', 'w:gz')",
        "import tarfile\ntarfile.open('x').extractall()",
        "import os\nos.makedirs('x')",
        "import os as o\no.remove('x')",
        "from os import unlink as gone\ngone('x')",
        "import shutil\nshutil.rmtree('x')",
        "import torch\ntorch.save({}, 'x.pt')",
        "import numpy as np\nnp.savez('x', 1)",
        "save = __import__\nimport numpy\nsave = numpy.save\nsave('x', 1)",
        "import matplotlib.pyplot as plt\nplt.savefig('x.png')",
        "fig.savefig('x.png')",
        "df.to_csv('x.csv')",
        "df.to_parquet('x')",
        "df.to_json(path_or_buf='x')",
        "import joblib\njoblib.dump(1, 'x')",
        "from torch.utils.tensorboard import SummaryWriter\nlog = SummaryWriter()",
        "import logging\nlogging.basicConfig(filename='x')",
        "import shelve\nshelve.open('x')",
        "import sqlite3\ndb = sqlite3.connect('x')\ndb.execute('insert into t values (1)')",
        "import numpy as np\nnp.memmap('x', 'float32', 'w+')",
        "model.save_pretrained('x')",
        "rows = [open(name, 'w') for name in 'ab']",
        "class Log:\n    def __init__(self):\n        open('x', 'w')\nclass Named(Log):\n    pass\nNamed()",
        "class K:\n    def __init__(self):\n        open('x', 'w')\nclass L(K):\n    def __init__(self):\n        super().__init__()\nL()",
        "def save(rows, *, path, **more):\n    import os\n    open(path, 'w')\nsave([], path='x')",
        "if True:\n    for name in 'ab':\n        open(name, 'w')",
    ],
)
def test_writes(source: str) -> None:
    assert set(_kinds(source)) == {WRITES}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "from subprocess import check_output\ncheck_output('ls')",
        "import os\nos.system('ls')",
        "import multiprocessing as mp\nmp.Pool(2)",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor()",
        "import torch.multiprocessing as mp\nmp.spawn(print)",
    ],
)
def test_starts_a_process(source: str) -> None:
    assert set(_kinds(source)) == {STARTS}


@pytest.mark.parametrize(
    "source",
    [
        "import requests\nrequests.get('x')",
        "import urllib.request\nurllib.request.urlretrieve('x', 'y')",
        "from urllib.request import urlopen\nurlopen('x')",
        "import pandas as pd\npd.read_csv('https://example.org/x.csv')",
        "import pandas as pd\nURL = 'https://example.org'\npd.read_csv(f'{URL}/x.csv')",
        "import pandas as pd\nURL = 'https://example.org'\npd.read_csv(URL + '/x.csv')",
        "from torchvision.datasets import MNIST\nMNIST('x', download=True)",
        "from torchvision.models import resnet18\nresnet18(weights='DEFAULT')",
        "from transformers import AutoModel\nAutoModel.from_pretrained('bert')",
        "from datasets import load_dataset\nload_dataset('x')",
        "import torch\ntorch.hub.load('a', 'b')",
        "from sklearn.datasets import fetch_openml\nfetch_openml('x')",
        "import socket\nsocket.create_connection(('x', 1))",
        "import wandb\nwandb.init()",
        "import gpulayer\ngpulayer.connect()",
        "model.push_to_hub('x')",
    ],
)
def test_uses_the_network(source: str) -> None:
    assert set(_kinds(source)) == {NETWORK}


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "open('x', 'rb')",
        "open('x', encoding='w')",
        "import builtins\nbuiltins.open('w')",
        "import rasterio\nrasterio.open('x', 'r')",
        "from pathlib import Path\nPath('w').read_text()",
        "from pathlib import Path\nPath('x').mkdir(exist_ok=True)",
        "import os\nos.makedirs('x', exist_ok=True)",
        "import tarfile\ntarfile.open('x', 'r:gz')",
        "import io, torch\nbuffer = io.BytesIO()\ntorch.save({}, buffer)",
        "df.to_csv()",
        "df.to_csv(None)",
        "df.x.str.extractall('a')",
        "import torch\ntorch.load('x.pt')",
        "import pandas as pd\npd.read_csv('x.csv')",
        "from torchvision.datasets import MNIST\nMNIST('x', download=False)",
        "from torchvision.models import resnet18\nresnet18(weights=None)",
        "from transformers import AutoModel\nAutoModel.from_pretrained('./mine')",
        "from transformers import AutoModel\nAutoModel.from_pretrained('x', local_files_only=True)",
        "import sqlite3\ndb = sqlite3.connect('x')\ndb.execute('select 1')",
        "import sqlite3\ndb = sqlite3.connect(':memory:')\ncursor = db.cursor()\ncursor.execute('insert into t values (1)')",
        "def open(name, mode):\n    return name\nopen('x', 'w')",
        "def open(name, mode):\n    return name\ndef f():\n    import os\n    open('x', 'w')\nf()",
        "import requests\ndef total(requests):\n    return requests.get('x')\ntotal({})",
        "def read(open):\n    return open('x', 'w')\nread(print)",
        "class Log:\n    def __init__(self):\n        open('x', 'w')\nclass Q(Log):\n    def __init__(self):\n        self.x = 1\nQ()",
        "write = lambda: open('x', 'w')",
        "def write():\n    open('x', 'w')",
        "class Log:\n    def write(self):\n        open('x', 'w')",
        "'{}'.format('https://example.org')",
        "import os.path\nos.path.join('x', 'w')",
        "text.replace('a', 'b')",
        "import os\nos.environ['x'] = 'w'",
    ],
)
def test_harmless(source: str) -> None:
    assert _kinds(source) == []
