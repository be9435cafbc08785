"""What people do in cells that reaches beyond Python's own names: imports, libraries, files, magics, the process."""

# ruff: noqa: E501 - the texts of cells are not broken over lines

from __future__ import annotations

from support.histories.names import Names
from support.histories.plain_constructs import Construct

FILES = {
    "nb/tools_plain.py": "LIMIT = 7\n\ndef limited(a):\n    return min(a, LIMIT)\n",
    "nb/tools_star.py": "from tools_plain import LIMIT\n_hidden = 1\nSTARRED = LIMIT + 1\n\ndef starred(a):\n    return (a + STARRED) % 97\n",
    "nb/pack/inner.py": "from .deep import DEEP\n\nclass Inner:\n    def __init__(self):\n        self.n = DEEP\n        self.seen = []\n",
    "nb/pack/deep.py": "DEEP = 5\n",
    "nb/reloaded.py": "def version(a):\n    return (a + 1) % 97\n",
    "nb/prepare.py": "import json\nfrom tools_plain import limited\nSCALE = 3\nprepared = [limited(x) for x in (1, 20)]\n\ndef scaled(a):\n    return (a * SCALE) % 97\n\nif __name__ == '__main__':\n    main_ran = 1\n",
    "nb/uses_names.py": "from_outside = given + 1\ngiven_twice = given * 2\n",
    "nb/sub/note.txt": "twelve chars",
    "above.py": "ABOVE = 11\n\ndef upper(a):\n    return (a + ABOVE) % 97\n",
}
"""The folder that each history has: the notebook lies in `nb`."""


def plain_import(names: Names) -> list[str]:
    number = names.old("number")
    return names.chance.choice(
        [
            [f"import math\n{names.new('number')} = math.floor({number} / 2 + 1)"],
            [f"from collections import Counter, OrderedDict\n{names.new('dict')} = OrderedDict(k={number})"],
            [f"import json as j\n{names.new('list')} = j.loads(j.dumps([1, {number}]))"],
            [f"import xml.dom\nimport xml.sax\n{names.new('number')} = len(xml.dom.__name__ + xml.sax.__name__)"],
            [f"from tools_plain import limited, LIMIT\n{names.new('number')} = limited({number})"],
            [f"from pack.inner import Inner\n{names.new('object')} = Inner()"],
            [f"import importlib\npart = importlib.import_module('pack.deep')\n{names.new('number')} = part.DEEP"],
            ["import os.path as p, itertools", f"{names.new('list')} = list(itertools.islice(itertools.count({number}), 2))"],
        ]
    )


def conditional_import(names: Names) -> list[str]:
    module, number = names.fresh("module"), names.old("number")
    return names.chance.choice(
        [
            [f"if {number} > 3:\n    import math as {module}\nelse:\n    import cmath as {module}", f"{names.new('number')} = int({module}.sqrt(16).real)"],
            [f"import sys\nif sys.version_info >= (3, 8):\n    from math import prod as {module}\nelse:\n    from functools import reduce as {module}",
             f"{names.new('number')} = {module}([1, {number}]) % 97"],
            [f"if not {number}:\n    import nothing_like_it as {module}\nelif True:\n    import tools_plain as {module}", f"{names.new('number')} = {module}.limited({number})"],
        ]
    )  # fmt: skip


def star_import(names: Names) -> list[str]:
    number = names.old("number")
    return names.chance.choice(
        [
            [f"from math import *\n{names.new('number')} = int(floor({number} + 0.5) + ceil(pi))"],
            [f"from tools_star import *\n{names.new('number')} = starred({number})"],
            ["from tools_star import *", f"STARRED = {names.digit()}", f"{names.new('number')} = starred(STARRED)"],
            [f"from os.path import *\n{names.new('list')} = [len(basename('a/bcd')), {number}]"],
        ]
    )


def future(names: Names) -> list[str]:
    function = names.new("function")
    return [f"from __future__ import annotations\ndef {function}(a: Nothing) -> Nowhere:\n    return (a + {names.old('number')}) % 97"]


def fallback_import(names: Names) -> list[str]:
    module, number = names.fresh("library"), names.old("number")
    return names.chance.choice(
        [
            [f"try:\n    import not_installed_{module} as {module}\nexcept ImportError:\n    import json as {module}", f"{names.new('number')} = len({module}.dumps({number}))"],
            [f"try:\n    from math import isqrt as {module}\nexcept ImportError:\n    def {module}(a):\n        return int(a ** 0.5)", f"{names.new('number')} = {module}(16 + {number})"],
            [f"try:\n    import not_installed_{module}\n    has_{module} = True\nexcept ModuleNotFoundError as error:\n    has_{module} = False",
             f"{names.new('number')} = int(has_{module}) + {number}"],
        ]
    )  # fmt: skip


def type_checking(names: Names) -> list[str]:
    function, thing = names.new("function"), names.fresh("Thing")
    return [
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nowhere_at_all import {thing}",
        f"def {function}(a: '{thing}', b: 'list[{thing}] | None' = None) -> '{thing}':\n    return (a + {names.old('number')}) % 97",
    ]


def top_level_await(names: Names) -> list[str]:
    ask, number = names.fresh("ask"), names.old("number")
    define = f"import asyncio\nasync def {ask}(a):\n    await asyncio.sleep(0)\n    return (a + {number}) % 97"
    return names.chance.choice(
        [
            [define, f"{names.new('number')} = await {ask}(2)"],
            [define, f"{names.new('list')} = list(await asyncio.gather({ask}(1), {ask}({number})))"],
            [define, f"task = asyncio.ensure_future({ask}(3))", f"{names.new('number')} = await task"],
            [define, f"if await {ask}(1) >= 0:\n    {names.new('list')} = [await {ask}(k) for k in (1, 2)]"],
            [define, f"await {ask}(1)", f"{names.new('number')} = 1 + (await {ask}(4))"],
            ['text = """\n  kept\n"""', define, f'text = """\n {{}}\n""".format(await {ask}(2))', f"{names.new('number')} = len(text)"],
        ]
    )  # fmt: skip


def async_with(names: Names) -> list[str]:
    context, target, number = names.fresh("Context"), names.new("list"), names.old("number")
    return names.chance.choice(
        [
            [
                f"class {context}:\n    async def __aenter__(self):\n        return {number}\n    async def __aexit__(self, *error):\n        return None",
                f"{target} = [0, 1]\nasync with {context}() as got:\n    {target}.append(got)",
            ],
            [
                f"from contextlib import asynccontextmanager\n@asynccontextmanager\nasync def {context}(k):\n    yield k + 1",
                f"async with {context}({number}) as got, {context}(2) as {context}_two:\n    {target} = [got, {context}_two]",
            ],
            [
                f"async def {context}():\n    for k in range(3):\n        yield k",
                f"{target} = [9]\nasync for k in {context}():\n    {target}.append(k + {number})",
            ],
            [f"import asyncio\nlock_{context} = asyncio.Lock()", f"async with lock_{context}:\n    {target} = [{number}, 1]"],
        ]
    )


def monkey_patch(names: Names) -> list[str]:
    method, number, target = names.fresh("method"), names.old("number"), names.new("number")
    return names.chance.choice(
        [
            [f"import torch\ntorch.Tensor.{method} = lambda self: self + {number}", f"{target} = int(torch.ones(1).{method}().item())"],
            [f"import torch\nones_{method} = torch.ones(2)", f"torch.Tensor.{method} = lambda self: int(self.sum()) + 1", f"{target} = ones_{method}.{method}()"],
            [f"import torch.nn as nn\nsetattr(nn.Module, '{method}', lambda self: {number})", f"import torch\n{target} = torch.nn.Linear(1, 1).{method}()"],
            [f"import tools_plain\ntools_plain.LIMIT = {names.digit()}", f"{target} = tools_plain.limited(50)"],
            [f"import json\njson.{method} = lambda value: len(json.dumps(value))", f"from json import {method} as short_{method}\n{target} = short_{method}([{number}])"],
            [f"class Plain{method}:\n    n = 1\n    seen = ()\n{names.new('object')} = it_{method} = Plain{method}()", f"Plain{method}.go = lambda self: self.n + {number}", f"{target} = it_{method}.go()"],
            [f"from tools_plain import limited as l_{method}\nl_{method}.{method} = {number}", f"{target} = l_{method}.{method} + 1"],
            [f"from collections import OrderedDict\nclass O{method}(OrderedDict):\n    pass\ndef go_{method}(self):\n    return len(self) + 1\nO{method}.go = go_{method}", f"{target} = O{method}(a=1).go()"],
        ]
    )  # fmt: skip


_SEEDS = {
    "random": "import random\nrandom.seed({})",
    "numpy": "import numpy as np\nnp.random.seed({})",
    "torch": "import torch\ntorch.manual_seed({})",
}


def seed(names: Names) -> list[str]:
    family = names.pick("random", "numpy", "torch")
    cells = []
    if family not in names.seeded or names.chance.random() < 0.4:
        cells = [_SEEDS[family].format(names.digit())]
        names.seeded.add(family)
    draw, target, shuffled = names.fresh("draw"), names.new("number"), names.new("list")
    texts = {
        "random": [
            [f"import random\n{target} = random.randint(0, 96)"],
            [f"import random\ndef {draw}():\n    return random.randint(0, 96)", f"{target} = {draw}()", f"{draw}()"],
            [f"import random\n{shuffled} = [1, 2, 3, 4]\nrandom.shuffle({shuffled})\n{target} = random.choice([1, 2, 3])"],
            [f"from random import randrange\n{target} = randrange(90)"],
        ],
        "numpy": [
            [f"import numpy as np\n{names.new('array')} = np.random.rand(3)\n{target} = 3"],
            [f"import numpy as np\nrng_{draw} = np.random.default_rng({names.digit()})\n{target} = int(rng_{draw}.integers(90))", f"{names.new('array')} = rng_{draw}.random(2)"],
            [f"import numpy as np\n{target} = int(np.random.permutation(9)[0])\n{names.new('array')} = np.zeros(2)"],
        ],
        "torch": [
            [f"import torch\n{names.new('tensor')} = torch.rand(3)\n{target} = 1"],
            [f"import torch\nnet_{draw} = torch.nn.Linear(2, 1)\n{target} = int(net_{draw}.weight.sum().item() * 100)\n{names.new('tensor')} = net_{draw}.weight.detach()"],
            [f"import torch\ngen_{draw} = torch.Generator().manual_seed({names.digit()})\n{names.new('tensor')} = torch.randperm(4, generator=gen_{draw})\n{target} = 2"],
        ],
    }[family]  # fmt: skip
    return [*cells, *names.chance.choice(texts)]


def array(names: Names) -> list[str]:
    if not names.has("array"):
        return [f"import numpy as np\n{names.new('array')} = np.arange(4.0)"]
    name, number = names.old("array"), names.old("number")
    return names.chance.choice(
        [
            [f"{name}[0] = {number}"],
            [f"part = {name}[:1]\npart += {number}"],
            [f"{names.new('array')} = {name}.reshape(-1)", f"{name} *= 2"],
            [f"import numpy as np\nnp.add({name}, 1, out={name})"],
            [f"import numpy as np\nnp.copyto({name}, {number})\n{names.new('array')} = {name} + 1"],
            [f"{name}.fill({number})"],
            [f"{names.new('number')} = int({name}.sum()) % 97"],
            [f"import numpy as np\n{names.new('array')} = np.asarray({name})\n{name}[-1] = {number}"],
        ]
    )


def tensor(names: Names) -> list[str]:
    if not names.has("tensor"):
        return [f"import torch\n{names.new('tensor')} = torch.arange(4.0)"]
    name, number = names.old("tensor"), names.old("number")
    return names.chance.choice(
        [
            [f"{name}[0] = {number}"],
            [f"flat = {name}.view(-1)\nflat.mul_(2)"],
            [f"import torch\n{names.new('tensor')} = torch.cat([{name}.reshape(-1).float(), torch.ones(1)])", f"{name}.zero_()"],
            [f"shared = {name}.numpy()\nshared[0] = {number}"],
            [f"import torch\ntorch.clamp({name}, 0, 3, out={name})\n{names.new('number')} = int({name}.sum()) % 97"],
            [f"rows = list({name})\nrows[0].add_({number})"],
        ]
    )


def train(names: Names) -> list[str]:
    net, number = names.fresh("net"), names.digit()
    names.seeded.add("torch")
    return [
        f"import torch\nfrom torch import nn\ntorch.manual_seed({number})\n{net} = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))",
        f"opt_{net} = torch.optim.SGD({net}.parameters(), lr=0.1)\nloss_{net} = nn.MSELoss()",
        f"losses_{net} = []\nfor step in range(3):\n    opt_{net}.zero_grad()\n    out = loss_{net}({net}(torch.ones(1, 2)), torch.zeros(1, 1))\n    out.backward()\n    opt_{net}.step()\n    losses_{net}.append(round(out.item(), 6))",
        f"{names.new('tensor')} = torch.cat([p.detach().reshape(-1) for p in {net}.parameters()])\n{names.new('list')} = losses_{net}",
    ]


def effect(names: Names) -> list[str]:
    file, number = f"log_{names.chance.randrange(4)}.txt", names.old("number")
    write = names.pick(
        f"with open('{file}', 'a') as out:\n    out.write(str({number}))",
        f"from pathlib import Path\nPath('{file}').write_text(str({number}) * 3)",
        f"import json\nwith open('{file}', 'w') as out:\n    json.dump([{number}], out)",
        f"import numpy as np\nnp.savetxt('{file}', [{number}])",
        f"def save_{file[4]}(what):\n    with open('{file}', 'w') as out:\n        print(what, file=out)\nsave_{file[4]}({number})",
        f"from pathlib import Path\ntarget = Path('{file}')\ntarget.write_text(str({number}))",
    )
    if names.chance.random() < 0.3:
        return [
            names.pick(
                "import subprocess\nsubprocess.run(['true'])",
                "import os\nos.makedirs('made', exist_ok=True)",
                f"print({number})",
                "import os, tempfile\nfd, tmp = tempfile.mkstemp(dir='.')\nos.close(fd)",
                "import os\nos.system('true')",
            )
        ]
    if names.chance.random() < 0.5:
        return [write]
    read = names.pick(
        f"with open('{file}') as given:\n    {names.new('number')} = len(given.read())",
        f"from pathlib import Path\n{names.new('number')} = len(Path('{file}').read_text())",
        f"from pathlib import Path\ndef size_of(where):\n    return len(Path(where).read_bytes())\n{names.new('number')} = size_of('{file}')",
        f"import os\n{names.new('number')} = os.path.getsize('{file}')",
    )
    return [write, read]


def run_file(names: Names) -> list[str]:
    return names.chance.choice(
        [
            ["%run prepare.py", f"{names.new('number')} = scaled({names.old('number')})\n{names.new('list')} = prepared + [SCALE]"],
            ["%run prepare.py", f"SCALE = 50\n{names.new('number')} = scaled(1) + main_ran"],
            ["%run prepare", f"prepared.append({names.old('number')})", f"{names.new('list')} = prepared"],
            [f"given = {names.old('number')}", "%run -i uses_names.py", f"{names.new('number')} = from_outside + given_twice"],
            ["%run ./prepare.py", f"{names.new('number')} = len(prepared)"],
        ]
    )  # fmt: skip


def autoreload(names: Names) -> list[str]:
    cells = ["%load_ext autoreload\n%autoreload 2", "import reloaded\nfrom tools_plain import limited"]
    if "nb/reloaded.py" not in names.edits and names.chance.random() < 0.7:
        names.edits["nb/reloaded.py"] = f"EXTRA = {names.digit()}\n\ndef version(a):\n    return (a + EXTRA + 10) % 97\n"
    return [*cells, "#EDIT", f"{names.new('number')} = reloaded.version({names.old('number')})"]


def sys_path(names: Names) -> list[str]:
    return [
        names.pick("import sys\nsys.path.append('..')", "import sys\nif '..' not in sys.path:\n    sys.path.insert(0, '..')"),
        names.pick(
            f"import above\n{names.new('number')} = above.upper({names.old('number')})",
            f"from above import upper as {names.new('function')}",
            f"from above import *\n{names.new('list')} = [ABOVE, upper(1)]",
        ),
    ]


def environ(names: Names) -> list[str]:
    key, number = f"GPL_TRY_{names.digit()}", names.old("number")
    return [
        names.pick(
            f"import os\nos.environ['{key}'] = str({number})",
            f"import os\nos.environ.update({key}='{names.digit()}')",
            f"from os import environ\nenviron['{key}'] = '4'",
            f"%env {key}={names.digit()}",
            f"import os\nos.putenv('{key}', '3')\nos.environ['{key}'] = '5'",
            f"import os as system\nsystem.environ.setdefault('{key}', '6')",
        ),
        names.pick(
            f"import os\n{names.new('number')} = int(os.environ['{key}'])",
            f"import os\n{names.new('number')} = int(os.getenv('{key}'))",
            f"from os import environ\n{names.new('dict')} = {{'k': environ.get('{key}')}}",
            f"import os\ndef {names.new('function')}(a):\n    return (a + int(os.environ['{key}'])) % 97",
        ),
    ]


def chdir(names: Names) -> list[str]:
    folder = names.fresh("work")
    go = names.pick(f"os.chdir('{folder}')", f"%cd -q {folder}", f"os.chdir(os.path.join('.', '{folder}'))")
    use = names.chance.choice(
        [
            [
                f"from pathlib import Path\nPath('here.txt').write_text('x' * {names.digit()})",
                f"{names.new('number')} = len(open('here.txt').read())",
            ],
            [f"{names.new('number')} = len(os.path.basename(os.getcwd()))"],
            [f"from pathlib import Path\n{names.new('list')} = [len(Path.cwd().name), 1]"],
            [f"{names.new('number')} = {names.digit()}"],
        ]
    )
    return [f"import os\nos.makedirs('{folder}', exist_ok=True)", go, *use, names.pick("os.chdir('..')", "%cd -q ..")]


def raised(names: Names) -> list[str]:
    number = names.new("number")
    return (
        [f"{number} = {names.digit()}\n1 / 0\n{number} = 99", f"{number} += 1"]
        if names.chance.random() < 0.5
        else [f"{number} = 5\nraise ValueError({number})"]
    )


def shown(names: Names) -> list[str]:
    return [
        names.pick(
            f"print({names.old('number')}, {names.old('list')})",
            f"{names.old('list')}",
            f"%time {names.new('number')} = {names.digit()}",
            f"%%time\n{names.new('list')} = [1, {names.digit()}]",
            "%precision 4",
            "# only a comment",
            f"display({names.old('list')})",
        )
    ]


def remote(names: Names) -> list[str]:
    function = names.fresh("remote")
    names.refused[function] = "was made in a %%gpulayer cell"
    return [f"%%gpulayer --nodes 1\ndef {function}(a):\n    return a + 1"]


WORLD: dict[str, Construct] = {
    "import": plain_import,
    "conditional import": conditional_import,
    "star import": star_import,
    "from __future__": future,
    "try/except ImportError": fallback_import,
    "TYPE_CHECKING": type_checking,
    "top-level await": top_level_await,
    "async with": async_with,
    "monkey patch": monkey_patch,
    "seeding": seed,
    "array": array,
    "tensor": tensor,
    "train": train,
    "effect": effect,
    "%run": run_file,
    "autoreload": autoreload,
    "sys.path": sys_path,
    "os.environ": environ,
    "os.chdir": chdir,
    "raised": raised,
    "shown": shown,
    "%%gpulayer function": remote,
}
