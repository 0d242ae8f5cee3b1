"""By the names that libraries give them: what does not replay. `a.b.*` is all that is directly in `a.b`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call of it, or reading it, is. `when` looks at the call, where it depends on that."""

    code: str
    remedy: str = ""
    when: Callable[[ast.Call], bool] | None = None


def _bare(call: ast.Call) -> bool:
    return not call.args and not call.keywords


def _single(call: ast.Call) -> bool:
    return len(call.args) < 2 and not call.keywords


def _waits(call: ast.Call) -> bool:
    """Not `sleep(0)`, which only lets others have a turn."""
    given = call.args[0] if call.args else None
    return not (isinstance(given, ast.Constant) and given.value == 0)


_UUID = "`run.uuid()`: it is recorded"
_STATE = "ask in a step, `await run.step(…)`: what it answers is recorded"
_TIMEOUT = "`run.options(timeout=…)` for one call, or `run.first(…, late=run.sleep(…))`"
_TASKS = "`run.gather`, `run.map` or `run.first`: which branch ended how is recorded"
_THREADS = "`await run.step(…)`, which runs a plain `def` on a thread and records its result"
_USED = "register the agent, `app.agent(…)`, and have it do its part by `await run.use(…)`: its requests are recorded"
_RUNNER = "`DurableRunner` of outlive.openai_agents: its requests are recorded"


def _each(prefix: str, names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names.split()]


def _all(rule: Rule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


_CLOCK = Rule("clock")
_RANDOM = Rule("random")
_ENVIRONMENT = Rule("environment")
_FILE = Rule("file")
_NETWORK = Rule("network")
_PROCESS = Rule("process")

# Verbs of clients for HTTP, by their classes.
_VERBS = "get post put patch delete head options request send stream"

# What is called. None: it belongs to a family below, and is harmless.
CALLS: dict[str, Rule | None] = {
    **_all(
        _CLOCK,
        *_each("time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns"),
        *_each("time", "thread_time thread_time_ns clock_gettime clock_gettime_ns"),
        *_each("datetime.datetime", "now utcnow today"), "datetime.date.today", "asyncio.AbstractEventLoop.time",
        "pandas.Timestamp.now", "pandas.Timestamp.today", "pandas.Timestamp.utcnow", "arrow.now", "arrow.utcnow",
        "pendulum.now", "pendulum.today", "django.utils.timezone.now", "django.utils.timezone.localtime",
    ),
    **_all(Rule("clock", when=_bare), *_each("time", "localtime gmtime ctime asctime")),
    "time.strftime": Rule("clock", when=_single),
    **_all(_RANDOM, "random.*", "secrets.*", "numpy.random.*", "os.urandom", "os.getrandom"),
    "secrets.compare_digest": None, "random.Random": Rule("random", when=_bare),
    **_all(Rule("random", when=_bare), "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.PCG64"),
    "numpy.random.Generator": None, "numpy.random.SeedSequence": None,
    **_all(Rule("random", _UUID), *_each("uuid", "uuid1 uuid4 uuid6 uuid7")),
    **_all(Rule("hash"), "builtins.hash", "builtins.id"),
    **_all(
        _ENVIRONMENT,
        *_each("os", "getenv getenvb getpid getppid getcwd getlogin getuid geteuid getgid uname cpu_count getloadavg"),
        *_each("os.path", "expanduser expandvars"), *_each("socket", "gethostname getfqdn"), "platform.*",
        "getpass.getuser", "multiprocessing.cpu_count", *_each("pathlib.Path", "home cwd expanduser"), "builtins.input",
        "uuid.getnode", "sys.getsizeof",
    ),
    **_all(
        _FILE,
        "builtins.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "tarfile.open", "zipfile.ZipFile",
        "aiofiles.open", "shutil.*", "tempfile.*", "glob.glob", "glob.iglob", "fileinput.input",
        *_each("os", "open listdir scandir walk remove unlink rename renames replace mkdir makedirs rmdir removedirs"),
        *_each("os", "stat lstat access chmod chown link symlink readlink truncate utime mkfifo"),
        *_each("os.path", "exists lexists isfile isdir islink getsize getmtime getatime getctime realpath samefile"),
        *_each("pathlib.Path", "open read_text read_bytes write_text write_bytes unlink mkdir rmdir rename replace"),
        *_each("pathlib.Path", "touch exists is_file is_dir is_symlink iterdir glob rglob walk stat lstat chmod owner"),
        *_each("pathlib.Path", "symlink_to hardlink_to readlink samefile resolve copy move"),
        *_each("pandas", "read_csv read_json read_excel read_parquet read_pickle read_sql read_table read_html"),
        *_each("numpy", "load loadtxt genfromtxt save savez savetxt"),
    ),
    **_all(
        _NETWORK,
        *_each("requests", "get post put patch delete head options request"), *_each("requests.Session", _VERBS),
        *_each("httpx", "get post put patch delete head options request stream"),
        *_each("httpx.Client", _VERBS), *_each("httpx.AsyncClient", _VERBS),
        *_each("aiohttp.ClientSession", f"{_VERBS} ws_connect"), "aiohttp.request",
        *_each("urllib.request", "urlopen urlretrieve"), "urllib.request.OpenerDirector.open",
        *_each("http.client.HTTPConnection", "request connect send getresponse"),
        *_each("urllib3", "request"), *_each("urllib3.PoolManager", "request urlopen"),
        *_each("socket", "socket create_connection create_server getaddrinfo gethostbyname gethostbyaddr"),
        *_each("asyncio", "open_connection open_unix_connection start_server start_unix_server"),
        "smtplib.SMTP", "smtplib.SMTP_SSL", "ftplib.FTP", "ftplib.FTP_TLS", "imaplib.IMAP4", "imaplib.IMAP4_SSL",
        "poplib.POP3", "poplib.POP3_SSL", "telnetlib.Telnet", "websockets.connect", "paramiko.SSHClient.connect",
        *_each("boto3", "client resource"), *_each("boto3.Session", "client resource"),
        "sqlite3.connect", "psycopg.connect", *_each("psycopg.Connection", "connect execute cursor commit transaction"),
        *_each("psycopg.AsyncConnection", "connect execute cursor commit transaction"), "psycopg2.connect",
        *_each("sqlite3.Connection", "execute executemany executescript cursor commit"),
        *_each("asyncpg", "connect create_pool"), "aiosqlite.connect", "pymysql.connect", "pymongo.MongoClient",
        *_each("sqlalchemy.orm.Session", "execute scalar scalars get query commit flush"),
        *_each("sqlalchemy.ext.asyncio.AsyncSession", "execute scalar scalars get commit flush"),
        *_each("sqlalchemy.Engine", "connect begin"), *_each("sqlalchemy.Connection", "execute scalar scalars commit"),
        "redis.from_url", "redis.Redis.execute_command",
    ),
    **_all(Rule("network", _USED), *_each("pydantic_ai.Agent", "run run_sync run_stream iter run_stream_events")),
    **_all(Rule("network", _RUNNER), *_each("agents.Runner", "run run_sync run_streamed")),
    **_all(
        _PROCESS,
        *_each("subprocess", "run call check_call check_output Popen getoutput getstatusoutput"),
        *_each("os", "system popen kill killpg fork forkpty execv execve execvp execvpe execl execle execlp execlpe"),
        *_each("os", "spawnl spawnle spawnlp spawnv spawnve spawnvp posix_spawn posix_spawnp abort _exit"),
        *_each("asyncio", "create_subprocess_exec create_subprocess_shell"),
        *_each("multiprocessing", "Process Pool"), "signal.signal", "signal.raise_signal", "anyio.run_process",
    ),
    **_all(Rule("sleep", when=_waits), "time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep", "anyio.sleep_until"),
    **_all(
        Rule("concurrency", _TASKS),
        *_each("asyncio", "gather create_task ensure_future wait as_completed TaskGroup shield run"),
        *_each("asyncio", "run_coroutine_threadsafe"),
        *_each("asyncio.AbstractEventLoop", "create_task call_later call_soon call_at run_until_complete"),
        "anyio.create_task_group",
    ),
    **_all(
        Rule("concurrency", _TIMEOUT),
        *_each("asyncio", "wait_for timeout timeout_at"), "anyio.move_on_after", "anyio.fail_after",
    ),
    **_all(
        Rule("concurrency", _THREADS),
        "threading.Thread", "threading.Timer", "asyncio.to_thread", "asyncio.AbstractEventLoop.run_in_executor",
        "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor", "anyio.to_thread.run_sync",
    ),
}  # fmt: skip

# What is read, called or not.
VALUES: dict[str, Rule] = _all(
    Rule("environment", _STATE), "os.environ", "os.environb", "sys.argv", "sys.orig_argv", "sys.stdin", "sys.flags"
)

# Clients that are made of classes of their own for each thing that can be asked: which methods of them ask.
CLIENTS: dict[str, frozenset[str]] = {
    root: frozenset("create parse stream retrieve list delete update cancel upload generate count_tokens".split())
    for root in ("openai", "anthropic", "groq", "mistralai", "cohere", "stripe")
}

# What their results are, of calls that have no annotations.
GIVES: dict[str, str] = {
    **dict.fromkeys(
        _each("asyncio", "get_running_loop get_event_loop new_event_loop"), "asyncio.AbstractEventLoop"
    ),
    **dict.fromkeys(
        _each("pathlib.Path", "joinpath with_name with_suffix with_stem absolute resolve expanduser cwd home"),
        "pathlib.Path",
    ),
    **dict.fromkeys(_each("pathlib.PurePath", "joinpath with_name with_suffix with_stem relative_to"), "self"),
    "logging.getLogger": "logging.Logger", "pathlib.Path.parent": "pathlib.Path", "pathlib.PurePath.parent": "self",
}  # fmt: skip

# Where what is said goes nowhere else. `True`: it is worth a note.
SAYS: dict[str, bool] = {
    "builtins.print": True, "warnings.warn": True,
    **dict.fromkeys(_each("logging", "debug info warning warn error exception critical log"), True),
    **dict.fromkeys(_each("logging.Logger", "debug info warning warn error exception critical log"), True),
    **dict.fromkeys(_each("logging.LoggerAdapter", "debug info warning warn error exception critical log"), False),
}  # fmt: skip

# Loggers that make their methods as they are asked for.
LOGGERS = frozenset({"loguru", "structlog"})


def rule_of(dotted: str) -> Rule | None:
    """What calling this is, None where it is harmless or not known."""
    if dotted in CALLS:
        return CALLS[dotted]
    parent, _, name = dotted.rpartition(".")
    return CALLS.get(f"{parent}.*") if not name.startswith("_") else None
