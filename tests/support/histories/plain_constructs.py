"""What people do in cells, in Python alone: each construct gives the texts of one or more cells."""

# ruff: noqa: E501 - the texts of cells are not broken over lines

from __future__ import annotations

from collections.abc import Callable

from support.histories.names import Names

Construct = Callable[[Names], list[str]]


def bind(names: Names) -> list[str]:
    old = names.old
    kind = names.pick("number", "number", "list", "dict")
    text = {
        "number": names.pick(
            f"{names.digit()}", f"({old('number')} + {old('number')}) % 97", f"len({old('list')})", f"sum({old('list')}) % 97"
        ),
        "list": names.pick(f"[{old('number')}, {old('number')}]", f"list({old('list')})", f"[1, *{old('list')}]", f"sorted({old('list')})"),
        "dict": names.pick(f"{{'k': {old('number')}}}", f"{{'k': 1, 'inner': {old('list')}}}", f"dict({old('dict')}, z={old('number')})"),
    }[kind]
    return [f"{names.new(kind)} = {text}"]


def unpack(names: Names) -> list[str]:
    first, second, rest = names.old("number"), names.old("number"), names.old("list")
    return [f"{names.new('number')}, *{names.new('list')} = {first}, {second}, *{rest}"]


def mutate(names: Names) -> list[str]:
    number = names.old("number")
    if names.has("dict") and names.chance.random() < 0.4:
        name = names.old("dict")
        return [
            names.pick(
                f"{name}['k'] = {number}",
                f"{name}.update(m={number})",
                f"{name}.setdefault('all', []).append({number})",
                f"{name} |= {{'p': {number}}}",
                f"{name}['k'] += 1",
                f"for key in list({name}):\n    {name}[key + '_'] = {number}\n    break",
            )
        ]
    if not names.has("list"):
        return bind(names)
    name = names.old("list")
    return [
        names.pick(
            f"{name}.append({number})",
            f"{name}[0] = {number}",
            f"{name} += [{number}]",
            f"{name}.extend({names.old('list')}[:2])",
            f"{name}.sort()",
            f"{name}[:] = [x + 1 for x in {name}]",
            f"for x in range(2):\n    {name}.append(x + {number})",
            f"[{name}.append(x) for x in (1, {number})]",
            f"list.append({name}, {number})",
            f"grow = {name}.append\ngrow({number})",
            f"getattr({name}, 'append')({number})",
        )
    ]


def alias(names: Names) -> list[str]:
    if not names.has("list"):
        return bind(names)
    name = names.old("list")
    other = names.new("list")
    holder = names.new("dict")
    number = names.old("number")
    return names.chance.choice(
        [
            [f"{other} = {name}", f"{other}.append({number})"],
            [f"{holder} = {{'k': 1, 'held': {name}}}", f"{holder}['held'].append({number})"],
            [f"{holder} = dict(k=2, held=[{name}])", f"{other} = {holder}['held'][0]\n{other}.append({number})"],
            [f"pair = ({name}, 1)", f"{other}, _x = pair\n{other} += [{number}]", f"{holder} = {{'k': pair[1]}}"],
            [f"def same(x):\n    return x\n{other} = same({name})", f"{other}.insert(0, {number})", f"{holder} = {{'k': len({name})}}"],
            [f"{holder} = {{'k': 0}}\nfor each in [{name}, {other} if '{other}' in globals() else []]:\n    each.append({number})"]
            if name == other
            else [f"{other} = [0]\n{holder} = {{'k': 0}}\nfor each in [{name}, {other}]:\n    each.append({number})"],
        ]
    )


def define(names: Names) -> list[str]:
    number, rest = names.old("number"), names.old("list")
    body = names.pick(
        f"return (a + {number}) % 97",
        f"b = a * {number}\n    return b % 89",
        f"return (a + len({rest})) % 97",
        f"return sum(x + a for x in {rest}) % 97",
    )
    return [f"def {names.new('function')}(a):\n    {body}"]


def redefine(names: Names) -> list[str]:
    if not names.has("function"):
        return define(names)
    name, kept = names.old("function"), names.fresh("kept")
    return [
        f"{kept} = {name}\ndef {name}(a, inner={kept}):\n    return (inner(a) + {names.digit()}) % 97",
        f"{names.new('number')} = {name}({names.old('number')})",
    ]


def call(names: Names) -> list[str]:
    if not names.has("function"):
        return define(names)
    function, number = names.old("function"), names.old("number")
    return [
        names.pick(
            f"{names.new('number')} = {function}({number})",
            f"{names.new('list')} = [{function}(x) for x in (1, 2)]",
            f"{names.new('list')} = list(map({function}, [1, {number}]))",
            f"{names.new('number')} = max([1, {number}], key={function})",
            f"{names.new('dict')} = {{'k': {function}({number}), 'call': [{function}][0](2)}}",
        )
    ]


def fill(names: Names) -> list[str]:
    """Functions that change what they are given."""
    if not names.has("list"):
        return bind(names)
    function, name = names.fresh("fill"), names.old("list")
    return [
        f"def {function}(where, *, n=2):\n    for i in range(n):\n        where.append(i)\n    return where",
        names.pick(f"{function}({name})", f"{names.new('list')} = {function}({name}, n=1)", f"print({function}({name}))"),
    ]


def delete(names: Names) -> list[str]:
    kinds = [kind for kind in ("number", "list", "dict") if len(names.live[kind]) > 1]
    if not kinds:
        return bind(names)
    kind = names.chance.choice(kinds)
    name = names.old(kind)
    if name not in names.live[kind]:
        return bind(names)
    if names.chance.random() < 0.5:
        names.gone(kind, name)
        return [f"del {name}"]
    return [f"del {name}", f"{name} = " + {"number": "7", "list": "[7, 8]", "dict": "{'k': 7}"}[kind]]


def decorator(names: Names) -> list[str]:
    mark, function, seen = names.fresh("mark"), names.new("function"), names.fresh("seen")
    number = names.old("number")
    return names.chance.choice(
        [
            [
                f"{seen} = []\ndef {mark}(inner):\n    {seen}.append(inner.__name__)\n    return inner",
                f"@{mark}\ndef {function}(a):\n    return a + 1",
                f"{names.new('number')} = len({seen})",
            ],
            [
                (
                    f"import functools\ndef {mark}(extra):\n    def wrap(inner):\n        @functools.wraps(inner)\n"
                    f"        def outer(a):\n            return (inner(a) + extra) % 97\n        return outer\n    return wrap"
                ),
                f"@{mark}({number})\ndef {function}(a):\n    return a * 2 % 97",
            ],
            [f"from functools import lru_cache\n@lru_cache(maxsize=None)\ndef {function}(a):\n    return (a + {number}) % 97"],
            [
                f"from dataclasses import dataclass, field\n@dataclass\nclass {mark}:\n    n: int = {number}\n    seen: list = field(default_factory=list)",
                f"{names.new('object')} = {mark}()",
                f"def {function}(a):\n    return (a + {mark}(a).n) % 97",
            ],
        ]
    )


def class_body(names: Names) -> list[str]:
    made, name = names.fresh("Made"), names.new("object")
    number, rest = names.old("number"), names.old("list")
    return names.chance.choice(
        [
            [
                (
                    f"class {made}:\n    size = {number}\n    table = [x * 2 for x in {rest}]\n    for i in range(2):\n        size += i\n"
                    f"    def __init__(self):\n        self.n = self.size\n        self.seen = []\n    def step(self, by):\n"
                    f"        self.n += by\n        self.seen.append(self.n)\n        return self.n % 97"
                ),
                f"{name} = {made}()",
                f"{name}.step({number})",
            ],
            [
                f"class {made}:\n    made = []\n    n = 1\n    seen = ()\n    def __init_subclass__(cls):\n        {made}.made.append(cls.__name__)",
                f"class {made}Sub({made}):\n    if {number} > 4:\n        n = 4\n    else:\n        n = {number}",
                f"{name} = {made}Sub()\n{names.new('number')} = len({made}.made)",
            ],
            [
                (
                    f"class {made}:\n    n = {number}\n    seen = {rest}\n    @property\n    def twice(self):\n        return self.n * 2\n"
                    f"    @classmethod\n    def build(cls, n):\n        it = cls()\n        it.n = n\n        return it"
                ),
                f"{name} = {made}.build(3)",
                f"{names.new('number')} = {name}.twice % 97",
            ],
        ]
    )


def use_object(names: Names) -> list[str]:
    if not names.has("object"):
        return class_body(names)
    name = names.old("object")
    return names.chance.choice(
        [
            [f"{name}.n = {names.old('number')}"],
            [f"{names.new('number')} = {name}.n"],
            [f"{names.new('object')} = {name}", f"{name}.n += 1"],
            [f"setattr({name}, 'n', {names.digit()})"],
            [f"vars({name})['n'] = {names.digit()}"],
            [f"{names.new('dict')} = {{'k': 1, 'object': {name}}}"],
        ]
    )


def closure(names: Names) -> list[str]:
    make, function, number = names.fresh("make"), names.new("function"), names.old("number")
    return names.chance.choice(
        [
            [
                f"def {make}():\n    box = []\n    def add(a):\n        box.append(a)\n        return len(box) + {number}\n    return add",
                f"{function} = {make}()",
                f"{function}(1)",
            ],
            [f"{function} = (lambda k: lambda a: (a + k) % 97)({number})"],
            [
                f"def {make}(k):\n    def inner(a):\n        return (a * k) % 97\n    return inner\nmakers = [{make}(i) for i in range(1, 4)]",
                f"{function} = makers[1]",
            ],
            [f"from functools import partial\ndef {make}(k, a):\n    return (k + a) % 97\n{function} = partial({make}, {number})"],
        ]
    )


def default_argument(names: Names) -> list[str]:
    function, number = names.new("function"), names.new("number")
    return names.chance.choice(
        [
            [f"{number} = {names.digit()}", f"def {function}(a, b={number}):\n    return (a + b) % 97", f"{number} = {names.digit()}"],
            [f"def {function}(a, seen=[]):\n    seen.append(a)\n    return len(seen)", f"{number} = {function}(1)"],
            [f"{number} = {names.digit()}\n{function} = lambda a, *, b={number}: (a * b) % 97", f"{number} += 1"],
            [
                f"{number} = 2\ndef {function}(a, /, b=[{number}, {names.old('number')}], *rest, c={names.old('number')}):\n    return (a + b[0] + c) % 97"
            ],
        ]
    )


def comprehension(names: Names) -> list[str]:
    number, target = names.old("number"), names.new("list")
    shadowed = names.old("number") if names.has("number") else "x"
    shadowed = shadowed if not shadowed.isdigit() else "x"
    return names.chance.choice(
        [
            [f"{target} = [{shadowed} for {shadowed} in range(3)]"],
            [f"{target} = [x + y for x in range(2) for y in (1, {number}) if x < {number}]"],
            [f"{names.new('dict')} = {{str(x): x + {number} for x in range(2)}} | {{'k': 1}}", f"{target} = [1, 2]"],
            [f"lazy = (x + {number} for x in (1, 2))", f"{target} = list(lazy)"],
            [f"{target} = [x for x in {names.old('list')}] + [1]"],
            [f"{target} = [[x for x in range(y)] for y in range(1, 3)][1] + [max(x for x in (1, {number}))]"],
        ]
    )


def declared_global(names: Names) -> list[str]:
    function, number, rest = names.fresh("bump"), names.new("number"), names.old("list")
    return names.chance.choice(
        [
            [
                f"{number} = {names.digit()}\ndef {function}():\n    global {number}\n    {number} += 1",
                f"{function}()",
                f"{function}()\n{function}()",
            ],
            [
                f"def {function}(k):\n    global {number}\n    {number} = k + len({rest})\n    return k",
                f"got = [{function}(k) for k in (1, 2)]",
            ],
            [
                f"class {function}:\n    def run(self):\n        global {number}\n        {number} = 5\n        return self",
                f"{function}().run()",
            ],
            [
                f"def {function}():\n    def inner():\n        global {number}\n        {number} = 6\n    inner()",
                f"{function}()",
                f"print({number})",
            ],
        ]
    )


def declared_nonlocal(names: Names) -> list[str]:
    make, function = names.fresh("counter"), names.new("function")
    return [
        f"def {make}(start={names.old('number')}):\n    count = start\n    def up(a):\n        nonlocal count\n        count += a\n        return count % 97\n    return up",
        f"{function} = {make}()",
        names.pick(f"{function}(2)", f"{names.new('number')} = {function}(3)", f"for _i in range(3):\n    {function}(_i)"),
    ]


def walrus(names: Names) -> list[str]:
    number, rest = names.new("number"), names.old("list")
    return names.chance.choice(
        [
            [f"if ({number} := len({rest})) > 2:\n    big = True\nelse:\n    big = False"],
            [
                f"last = 0\n{names.new('list')} = [last := last + x for x in (1, 2, {number if number in rest else 3})]\n{number} = last % 97"
            ],
            [f"{number} = 4\nwhile ({number} := {number} - 1) > 1:\n    pass"],
            [f"print({number} := {names.digit()}, ({number} + 1))"],
            [f"{names.new('list')} = [{number} := {names.digit()}, {number} ** 2]"],
            [f"any(({number} := x) > 1 for x in (1, 2, 3))"],
        ]
    )


def match(names: Names) -> list[str]:
    number, rest, source = names.new("number"), names.new("list"), names.old("dict")
    return names.chance.choice(
        [
            [
                f"match {source}:\n    case {{'k': {number}, **others}}:\n        {rest} = [1, len(others)]\n    case _:\n        {number}, {rest} = 0, [0, 1]"
            ],
            [f"match [1, {names.digit()}, 3]:\n    case [first, *{rest}] if first:\n        {number} = first"],
            [
                f"match {names.digit()}:\n    case 1 | 2 | 3 as {number}:\n        pass\n    case int({number}):\n        {number} += 1\n{rest} = [{number}, 2]"
            ],
        ]
    )


def branch(names: Names) -> list[str]:
    number, rest = names.old("number"), names.old("list")
    target = names.new("number")
    return names.chance.choice(
        [
            [f"{target} = 1\nif {number} > 4:\n    {target} = {number}\nelif len({rest}) > 2:\n    {target} = 2"],
            [f"{target} = 0\nfor x in {rest}:\n    if x > 5:\n        continue\n    {target} += 1\nelse:\n    {target} += 2"],
            [
                f"try:\n    {target} = 10 // ({number} - {number})\nexcept ZeroDivisionError as error:\n    {target} = len(str(error))\nfinally:\n    done = True"
            ],
            [
                f"from contextlib import suppress, nullcontext\nwith nullcontext({number}) as {target}, suppress(KeyError):\n    {{}}['missing']"
            ],
            [
                f"{target} = 3\nassert {target}, 'never'\nit = iter([{number}, 2, 3])",
                f"{target} = next(it)",
                f"{names.new('list')} = [1, *it]",
            ],
        ]
    )


PLAIN: dict[str, Construct] = {
    "bind": bind,
    "unpack": unpack,
    "mutate": mutate,
    "alias": alias,
    "define": define,
    "redefinition": redefine,
    "call": call,
    "fill": fill,
    "del": delete,
    "decorator": decorator,
    "class body": class_body,
    "object": use_object,
    "closure": closure,
    "default argument": default_argument,
    "comprehension scope": comprehension,
    "global": declared_global,
    "nonlocal": declared_nonlocal,
    "walrus": walrus,
    "match": match,
    "branch": branch,
}
