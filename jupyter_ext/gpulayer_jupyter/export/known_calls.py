"""What is known about single calls that reach outside the process: which write files, start processes or use the network.

Only what is known is told: a call that nobody knows counts as harmless here (in the slice it counts as changing). What a
program's own functions do is found in `bodies.py`. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

WRITES, STARTS, NETWORK = "writes files", "starts a process", "uses the network"

_WORDS_OPENERS = """
open builtins.open io.open gzip.open bz2.open lzma.open codecs.open tarfile.open zipfile.ZipFile h5py.File fsspec.open smart_open.open
os.fdopen wave.open shelve.open dbm.open numpy.memmap numpy.lib.format.open_memmap netCDF4.Dataset zarr.open
"""
_OPENERS = frozenset(_WORDS_OPENERS.split())
_WRITING_MODE = re.compile(r"(?=[^:|]*[wax+])[rwaxbtU+]{1,4}([:|]\w*)?|[cn]")
_MODE_AT = {"numpy.memmap": 2}
_DEFAULT_MODES = {"shelve.open": "c"}

_WRITE_CALLS = re.compile(
    r"os\.(remove|unlink|rename|renames|replace|rmdir|removedirs|mkdir|makedirs|symlink|link|truncate|chmod|chown|utime|mkfifo|write)"
    r"|shutil\.(copy\w*|move|rmtree|make_archive|unpack_archive|chown)"
    r"|(numpy|torch|torch\.jit|torchaudio|onnx|tifffile)\.(save\w*|imwrite|imsave)|torch\.onnx\.(export|dynamo_export)"
    r"|joblib\.dump|scipy\.io\.(savemat|mmwrite|wavfile\.write)|cv2\.(imwrite|VideoWriter)|imageio(\.\w+)*\.(imwrite|mimwrite|imsave|mimsave)"
    r"|soundfile\.write|skimage\.io\.imsave|torchvision\.utils\.save_image|torchvision\.io\.write_\w+|safetensors(\.\w+)*\.save_file"
    r"|pyarrow(\.\w+)*\.write_\w+|matplotlib\.pyplot\.(savefig|imsave)|(torch\.utils\.tensorboard|tensorboardX)(\.\w+)*\.SummaryWriter"
    r"|logging(\.handlers)?\.\w*FileHandler|dotenv\.set_key|nbformat\.write|pytorch_lightning\.loggers\.\w+|lightning(\.\w+)*\.loggers\.\w+"
)
_PROCESS_CALLS = re.compile(
    r"subprocess\.(run|call|check_call|check_output|Popen|getoutput|getstatusoutput)"
    r"|os\.(system|popen|fork|forkpty|startfile|posix_spawn\w*|spawn\w+|exec\w+)|pty\.(spawn|fork)|asyncio\.create_subprocess_\w+"
    r"|(multiprocessing|multiprocess|torch\.multiprocessing)(\.(pool|process|context))?\.(Process|Pool|Manager|spawn|start_processes)"
    r"|concurrent\.futures(\.process)?\.ProcessPoolExecutor|ray\.init|dask\.distributed\.(Client|LocalCluster)|distributed\.(Client|LocalCluster)"
    r"|webbrowser\.open\w*|pexpect\.spawn\w*|sh\.\w+|pip\.main|gpulayer\.(\w+\.)*launch"
)
_NETWORK_CALLS = re.compile(
    r"(requests|httpx)\.(get|post|put|patch|delete|head|options|request|stream|Session|session|Client|AsyncClient)"
    r"|urllib\.request\.(urlopen|urlretrieve)|urllib3\.(PoolManager|request)|aiohttp\.(request|ClientSession)"
    r"|socket\.(socket|create_connection|create_server|getaddrinfo)|http\.client\.HTTPS?Connection|(ftplib|smtplib|imaplib|poplib)\.\w+"
    r"|xmlrpc\.client\.ServerProxy|wget\.download|gdown\.download\w*|boto3\.(client|resource|Session)|paramiko\.\w+|websockets?\.\w*connect"
    r"|wandb\.(init|log|login|save|Api|log_artifact|watch|finish)|mlflow\.(start_run|(\w+\.)?log_\w+|set_experiment|autolog|register_model)"
    r"|comet_ml\.Experiment|neptune\.init\w*|clearml\.Task\.init"
    r"|huggingface_hub\.(\w*download\w*|login|upload_\w+|create_repo|HfApi)|datasets\.load_dataset\w*|evaluate\.load"
    r"|torch\.hub\.(load\w*|download_url_to_file)|torchvision\.datasets\.utils\.download_\w+|sklearn\.datasets\.fetch_\w+"
    r"|(tensorflow\.keras|keras)(\.\w+)*\.(load_data|get_file)|tensorflow_datasets\.load|seaborn\.load_dataset|statsmodels(\.\w+)*\.get_rdataset"
    r"|nltk\.download|spacy\.cli\.download|gensim\.downloader\.load|openml\.\w+(\.\w+)*\.get_\w+|kagglehub\.\w+_download|yfinance\.\w+"
    r"|redis\.(Redis|StrictRedis|from_url)|pymongo\.MongoClient|psycopg2?\.connect|pymysql\.connect|gpulayer\.connect"
)

_WRITE_METHODS = re.compile(
    r"write_(text|bytes|csv|parquet|json|ndjson|ipc|excel|database|delta|html|image|video\w*|table|dataset)|sink_\w+|touch|unlink|rmdir"
    r"|symlink_to|hardlink_to|savefig|save|save_(pretrained|model|checkpoint|to_disk|file|weights|state|npz|all)|tofile|extractall"
    r"|to_(pickle|parquet|feather|hdf|excel|stata|orc|sql|gbq|netcdf|zarr)"
)
_WITH_PATH_METHODS = frozenset({"to_csv", "to_json", "to_html", "to_markdown", "to_latex", "to_xml", "to_string"})
_NETWORK_METHODS = re.compile(r"push_to_hub|urlretrieve|urlopen|download(_\w+)?|upload(_\w+)?|from_pretrained")
_SQL_METHODS = frozenset({"execute", "executemany", "executescript", "sql"})
_WRITING_SQL = re.compile(r"\s*(insert|update|delete|create|drop|alter|replace|copy|attach)\b", re.IGNORECASE)
_URL = re.compile(r"(https?|ftps?|s3a?|gs|gcs|hf|az|abfss?)://")
_URL_READERS = re.compile(
    r"(pandas|polars|dask\.dataframe|geopandas|xarray)\.(read|open|scan)_\w+|numpy\.(loadtxt|genfromtxt)|skimage\.io\.imread"
)
_BUFFERS = frozenset({"io.BytesIO", "io.StringIO", "tempfile.TemporaryFile", "tempfile.SpooledTemporaryFile"})

TextOf = Callable[[ast.expr], str | None]
"""The text that an expression surely is."""
MadeBy = Callable[[ast.expr], str]
"""The dotted name of the library call that an expression's value came from; empty where nobody knows."""


def what_it_does(call: ast.Call, dotted: str, *, text_of: TextOf, made_by: MadeBy) -> str | None:
    """One of `WRITES`, `STARTS`, `NETWORK`; None where it is not known to do any of them.

    Args:
        call: the call.
        dotted: what is called, by the name that it was imported under; empty where nobody knows.
        text_of: reads constants and names of constants.
        made_by: knows which values are buffers in memory.
    """
    if any(made_by(argument) in _BUFFERS for argument in (*call.args, *(keyword.value for keyword in call.keywords))):
        return None
    if dotted:
        known = _of_library(call, dotted, text_of)
        if known is not None or dotted in _OPENERS:
            return known
    if isinstance(call.func, ast.Attribute):
        return _of_method(call, call.func, dotted, text_of=text_of, made_by=made_by)
    return None


def _of_library(call: ast.Call, dotted: str, text_of: TextOf) -> str | None:
    first = text_of(call.args[0]) if call.args else None
    if dotted in _OPENERS:
        if first is not None and _URL.match(first):
            return NETWORK
        return WRITES if _writes(_mode(call, text_of, at=_MODE_AT.get(dotted, 1)) or _DEFAULT_MODES.get(dotted)) else None
    if _is_harmless_folder(call, dotted):
        return None
    for pattern, kind in ((_WRITE_CALLS, WRITES), (_PROCESS_CALLS, STARTS), (_NETWORK_CALLS, NETWORK)):
        if pattern.fullmatch(dotted):
            return kind
    if first is not None and _URL.match(first) and _URL_READERS.fullmatch(dotted):
        return NETWORK
    if dotted == "logging.basicConfig" and any(keyword.arg == "filename" for keyword in call.keywords):
        return WRITES
    if dotted.startswith(("torchvision.", "torchaudio.", "torchtext.", "torch_geometric.")):
        return _of_zoo(call)
    return None


def _of_zoo(call: ast.Call) -> str | None:
    """`MNIST(root, download=True)`, `resnet18(weights="DEFAULT")`."""
    for keyword in call.keywords:
        switched_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
        if keyword.arg in ("download", "pretrained", "weights") and not switched_off:
            return NETWORK
    return None


def _of_method(call: ast.Call, func: ast.Attribute, dotted: str, *, text_of: TextOf, made_by: MadeBy) -> str | None:
    name = func.attr
    first = text_of(call.args[0]) if call.args else None
    if name == "open":
        # `path.open("w")`, `rasterio.open(path, "w")`: of what was imported it isn't known which of the two it is.
        mode = (_mode(call, text_of, at=1) if dotted else None) or _mode(call, text_of, at=0)
        return WRITES if _writes(mode) else None
    if name == "mkdir":
        return None if _is_harmless_folder(call, "os.mkdir") else WRITES
    if name in _WITH_PATH_METHODS:
        given = call.args[:1] or [
            keyword.value for keyword in call.keywords if keyword.arg in ("path_or_buf", "buf", "path", "path_or_buffer")
        ]
        return WRITES if given and not (isinstance(given[0], ast.Constant) and given[0].value is None) else None
    if name in _SQL_METHODS:
        in_memory = made_by(func.value) == ":memory:"
        return WRITES if first is not None and _WRITING_SQL.match(first) and not in_memory else None
    if name.startswith("extract") and isinstance(func.value, ast.Attribute) and func.value.attr == "str":
        return None  # pandas' `df.x.str.extractall(…)`
    if name == "from_pretrained":
        local = first is not None and first.startswith((".", "/", "~"))
        offline = any(keyword.arg == "local_files_only" and _is_true(keyword.value) for keyword in call.keywords)
        return None if local or offline else NETWORK
    if _NETWORK_METHODS.fullmatch(name):
        return NETWORK
    if _WRITE_METHODS.fullmatch(name) and not (dotted and dotted.partition(".")[0] in ("math", "operator", "string", "re")):
        return WRITES
    return None


def _mode(call: ast.Call, text_of: TextOf, *, at: int) -> str | None:
    given = call.args[at] if len(call.args) > at else next((keyword.value for keyword in call.keywords if keyword.arg == "mode"), None)
    return text_of(given) if given is not None else None


def _writes(mode: str | None) -> bool:
    return mode is not None and _WRITING_MODE.fullmatch(mode) is not None


def _is_harmless_folder(call: ast.Call, dotted: str) -> bool:
    """Making a folder that may be there already is the same done twice as done once."""
    return dotted in ("os.mkdir", "os.makedirs") and any(keyword.arg == "exist_ok" and _is_true(keyword.value) for keyword in call.keywords)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)
