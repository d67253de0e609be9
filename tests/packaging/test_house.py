"""The rules of the house that a program can check: whole files, nouns, one name for one thing, public seams.

Each exception has its reason, and fails the test when it is needed no more.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "pinlater", ROOT / "workers" / "pinlater_workers")
MOST_LINES = 600

NOUNS_IN_ING = {"batching", "framing", "logging", "routing", "string", "testing", "tracing"}
"""Last words of module names in -ing that are nouns of the field."""

OPENINGS = {"What", "Where", "Who", "Whom", "Whose", "How", "Which", "When"}

NAMED_TUPLE = {"_replace", "_asdict", "_fields"}
"""Public in spite of their names, which every named tuple has."""

MODULES_IN_ING = {
    "pinlater/client/joining.py": "programs import a name from it that has moved",
}

SAME_MODULES = {
    "admin": "the commands, and the SQL stores' part of the same operations",
    "app": "a package, and the module of its main class",
    "client": "a package, and the module of its main class",
    "cluster": "the commands, and what they show",
    "connection": "one for each kind of peer: Redis, commands, client, server",
    "coordination": "one for each kind of store",
    "descriptors": "of a service's jobs, and of those on an overflow shard",
    "jobs": "of a store, of the model, and of the worker framework",
    "messages": "one for each kind of child process of a worker",
    "overflow": "a package, and the module of its main class",
    "records": "one for each kind of store",
    "service": "a package, the module of its main class, and the same over an overflow shard",
    "settings": "one for each part that has some",
    "shard": "one for each kind of store, and the commands",
    "site": "the HTTP interface, and the dashboard that is added to it",
    "worker": "a package, and the module of its main class",
}
"""Modules of one name in one distribution, and what keeps them apart."""

SAME_FUNCTIONS = 58
"""Names of public functions that several modules define: commands share their verbs with what carries them out."""

STORES = tuple(f"pinlater/backends/{store}/" for store in ("dynamodb", "redis", "sql"))
"""Their functions carry out the operations of one protocol, and share its names."""

WHOLE_OF_A_SEAM = {
    **dict.fromkeys(
        ["Service", "Client", "AsyncClient", "MemoryClient", "AsyncMemoryClient"], "a method for each call"
    ),
    **dict.fromkeys(["Shard", "RedisShard", "DynamodbShard"], "a method for each operation of its parts"),
    **dict.fromkeys(["SqlShard", "ServerShard", "SqliteShard", "MysqlShard", "PostgresShard"], "the same"),
    **dict.fromkeys(
        ["ShardDecorator", "ResilientShard", "BatchingShard", "TieredShard"], "the same, of which it changes some"
    ),
}
"""Classes that are longer than a file may be with all that they inherit, because of what they stand for."""

PRIVATE: dict[str, tuple[int, str]] = {
    "tests/bench/alone.py": (1, "the measure needs the one task that the server starts by itself"),
    "tests/conformance/mutation.py": (1, "a mutation replaces a statement where the store reads it"),
    "tests/simulation/virtual_time.py": (2, "its loop runs the handles of asyncio, whose members have such names too"),
    "tests/unit/test_cli_draining.py": (2, "the pauses of a command that waits are no option"),
    "tests/unit/test_sql_servers.py": (1, "a warning is given once in a process, and tests share one"),
    "tests/unit/test_web.py": (1, "how long a page is kept is no option"),
}
"""How many accesses to private members of the product a test file has, and why."""


@cache
def sources() -> dict[str, ast.Module]:
    """The product's modules by their paths."""
    files = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def name_of(path: str) -> str:
    """The module's own name; a package's is that of its folder."""
    file = Path(path)
    return file.parent.name if file.stem == "__init__" else file.stem


def compare(found: set[str], exceptions: Collection[str], what_to_do: str) -> None:
    assert sorted(found.difference(exceptions)) == [], what_to_do
    assert sorted(set(exceptions) - found) == [], "needed no more: take these out of tests/packaging/test_house.py"


def test_a_file_holds_one_idea_of_readable_length() -> None:
    long = {path for path in sources() if len((ROOT / path).read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    compare(long, (), f"longer than {MOST_LINES} lines: find the second idea in the file and give it a file")


def test_a_class_over_its_bases_is_of_readable_length() -> None:
    """A base in another file is read all the same."""
    classes = {
        node.name: node
        for tree in sources().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }

    def family(name: str) -> set[str]:
        names = {base.id for base in classes[name].bases if isinstance(base, ast.Name) and base.id in classes}
        return {name}.union(*map(family, names))

    def lines(name: str) -> int:
        return sum((each.end_lineno or 0) - each.lineno + 1 for each in map(classes.__getitem__, family(name)))

    long = {name for name in classes if lines(name) > MOST_LINES}
    compare(long, WHOLE_OF_A_SEAM, f"longer than {MOST_LINES} lines with its bases: give the second idea a class")


def test_a_module_is_named_by_a_noun() -> None:
    last_words = {path: name_of(path).rpartition("_")[2] for path in sources()}
    verbs = {path for path, word in last_words.items() if word.endswith("ing") and word not in NOUNS_IN_ING}
    compare(
        verbs, MODULES_IN_ING, "name the module by the thing it holds (wait_queue, health_monitor), not by an activity"
    )


def test_a_docstring_opens_with_a_noun_phrase() -> None:
    docs = {path: (ast.get_docstring(tree) or "").split(maxsplit=1) for path, tree in sources().items()}
    questions = {path for path, words in docs.items() if words and words[0].rstrip(",:") in OPENINGS}
    compare(questions, (), "open the module's docstring with a noun phrase that names what the module is")


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    several = {name for name, paths in places.items() if len(paths) > 1}
    compare(several, (), "rename one: a name stands for one class")


def test_few_public_functions_share_a_name() -> None:
    """A number that grows fails: name the new one by what it gives. One that falls is written down above."""
    places = defaultdict(set)
    for path, tree in sources().items():
        if not path.startswith(STORES):
            for node in tree.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                    places[node.name].add(path)
    several = sorted(name for name, paths in places.items() if len(paths) > 1)
    assert len(several) == SAME_FUNCTIONS, several


def test_a_module_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path in sources():
        if Path(path).stem != "__main__":
            places[path.partition("/")[0], name_of(path)].add(path)
    several = {name for (_, name), paths in places.items() if len(paths) > 1}
    compare(several, SAME_MODULES, "name each module of a distribution by what it holds and others do not")


@cache
def private_names() -> frozenset[str]:
    """Private attributes, methods and functions that the product defines."""
    names = set()
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__")) - NAMED_TUPLE


def own_names(tree: ast.Module) -> set[str]:
    """Private members that the classes of a test file define for themselves."""
    stored = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return stored | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def accesses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines that reach for a private name of the product, other than through `self` and `cls`."""
    theirs = private_names()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in theirs:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pinlater"):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in theirs)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from ((node.lineno, str(text)) for text in texts if str(text).rpartition(".")[2] in theirs)


def test_tests_speak_to_public_seams() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        theirs = [f"line {line}: {name}" for line, name in accesses(tree) if name not in own_names(tree)]
        if theirs:
            found[str(path.relative_to(ROOT))] = theirs
    others = {path: lines for path, lines in found.items() if len(lines) > PRIVATE.get(path, (0, ""))[0]}
    assert others == {}, "ask through a public method or a value that is returned; where none is, add a small one"
    fewer = {path: most for path, (most, _) in PRIVATE.items() if len(found.get(path, ())) < most}
    assert fewer == {}, "needed no more: lower these counts in tests/packaging/test_house.py"


NAMED_AS_TEXTS = {
    "pinlater/__init__.py": "the package's own names, which are loaded when they are first asked for",
    "pinlater/cli/__init__.py": "commands, each loaded when it is used",
    "pinlater/plan.py": "the module that a server process runs",
    "pinlater/server/http_process.py": "the module that the HTTP process runs",
    "pinlater/shard_factory.py": "stores, each loaded where one is configured",
    "workers/pinlater_workers/__init__.py": "as of the other package",
    "workers/pinlater_workers/cli/__init__.py": "commands, each loaded when it is used",
    "workers/pinlater_workers/cli/outbox_commands.py": "a part that needs an extra",
    "workers/pinlater_workers/cli/run.py": "a part that needs an extra",
    "workers/pinlater_workers/cli/sidecars.py": "parts that need an extra, and one that forks must not load",
    "workers/pinlater_workers/execution/failure_text.py": "compared with the modules of frames",
    "workers/pinlater_workers/heartbeat/heartbeats.py": "the module that the heartbeat process runs",
    "workers/pinlater_workers/pools/process_set.py": "the module that a process of the pool runs",
}
"""Files that name modules of the product in texts, which the contracts of setup.cfg do not see, and what for."""

NAMED_IN_CIRCLES = {
    ("pinlater_workers.execution.failure_text", "pinlater_workers.execution.attempt"): "no import: see NAMED_AS_TEXTS",
    ("pinlater_workers.flows.flow_run", "pinlater_workers.flows.flow"): "its results have the type of a stage's job",
    ("pinlater_workers.jobs.enqueue_options", "pinlater_workers.jobs.job_type"): "a type of job makes its options",
    ("pinlater_workers.jobs.handle", "pinlater_workers.jobs.job_type"): "a type of job makes the handles of its jobs",
}
"""Names of modules that close a circle, in which module and of which, and why; never an import at run time."""

NAMES_ALONE = {"get_logger", "getLogger", "GuardedLogger", "files"}
"""Functions to which the name of a module is that of a logger or a folder."""


def module_of(path: str) -> str:
    return ".".join(Path(path.removeprefix("workers/")).with_suffix("").parts).removesuffix(".__init__")


def called(call: ast.Call) -> str:
    """The last part of the function's name; "" where it has none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def named_modules(module: str, tree: ast.Module, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Modules that this one knows, and how: by a statement, an annotation, or a text."""
    nodes = list(ast.walk(tree))
    checked = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    annotations = {each for node in checked for each in ast.walk(node)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    names = {each for call in calls if called(call) in NAMES_ALONE for each in call.args}
    loads = any(called(call) == "import_module" for call in calls)
    for node in nodes:
        how = "annotation" if node in annotations else "statement"
        if isinstance(node, ast.Import):
            yield from ((alias.name, how) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module or "", how
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in names:
            if "." in node.value:
                yield node.value, "text"
            if loads:  # perhaps as f"{__name__}.{text}"
                yield f"{module}.{node.value}", "text"


@cache
def known_modules() -> dict[str, dict[str, set[str]]]:
    """Of each module those that it knows, and how."""
    modules = {module_of(path): tree for path, tree in sources().items()}
    known: dict[str, dict[str, set[str]]] = {module: defaultdict(set) for module in modules}
    for module, tree in modules.items():
        for name, how in named_modules(module, tree, modules):
            if name in modules and name != module:
                known[module][name].add(how)
    return known


def test_what_contracts_judge_is_imported_by_statements() -> None:
    """The contracts of setup.cfg see no `import_module("pinlater.x")`; they see a statement inside a function."""
    found = {path for path in sources() for how in known_modules()[module_of(path)].values() if "text" in how}
    compare(found, NAMED_AS_TEXTS, "import it by a statement, inside the function where it is to be loaded late")


def circle(known: Mapping[str, Collection[str]]) -> str:
    """ "": there is none."""
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        return " is known to ".join(error.args[1])
    return ""


def test_no_module_knows_itself_by_way_of_others() -> None:
    """Annotations and texts count too: whoever reads one module of a circle has to read all of them."""
    known = known_modules()
    imported = [(one, other) for one, other in NAMED_IN_CIRCLES if "statement" in known[one][other]]
    assert imported == [], "imported at run time: these cannot be exceptions"
    rest = {module: {each for each in known[module] if (module, each) not in NAMED_IN_CIRCLES} for module in known}
    assert circle(rest) == "", "put what both need into a module below, or give one a protocol of the other"
    needless = [(one, other) for one, other in NAMED_IN_CIRCLES if not circle({**rest, one: {*rest[one], other}})]
    assert needless == [], "needed no more: take these out of tests/packaging/test_house.py"


PRIVATE_WORDS = {"told", "said", "looked", "asked", "trouble", "troubles"}

PRIVATE_NAMES: dict[str, tuple[int, str]] = {
    "pinlater/bodies": (2, "the progress of a sweep, as stores have it"),
    "pinlater/client": (1, "an argument of `Tls.from_mapping`, which is public"),
    "pinlater/cluster": (1, "a field of leases, as stores have them"),
    "pinlater/http": (5, "JSON keys"),
    "pinlater/model": (11, "fields of the wire and JSON keys"),
    "workers/pinlater_workers/jobs": (1, "an argument of `JobContext.on_stop`, which is public"),
    "workers/pinlater_workers/observability": (1, "a JSON key of the worker's status"),
}
"""How many names with such a word a package binds, and why: fields keep the names that wires, stores and JSON have."""


def private_words(tree: ast.Module) -> Iterator[str]:
    """Names of variables, fields, arguments, attributes and functions that have one of these words in them."""
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.ExceptHandler | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name or ""
        if PRIVATE_WORDS.intersection(name.split("_")):
            yield f"line {getattr(node, 'lineno', 0)}: {name}"


def test_names_say_in_the_words_of_the_field_what_a_value_is() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in sources().items():
        found[str(Path(path).parent)] += [f"{path}, {each}" for each in private_words(tree)]
    more = {package: names for package, names in found.items() if len(names) > PRIVATE_NAMES.get(package, (0, ""))[0]}
    assert more == {}, "name it by what it is: an answer, a request, a problem, a report, a count of what was examined"
    fewer = {package: most for package, (most, _) in PRIVATE_NAMES.items() if len(found.get(package, ())) < most}
    assert fewer == {}, "needed no more: lower these counts in tests/packaging/test_house.py"


UNJUDGED = "stood here before this rule: find the event that it waits for"

SLEEPS: dict[str, tuple[int, str]] = {
    "tests/bodies/test_body_faults.py": (1, UNJUDGED),
    "tests/bodies/test_body_kills.py": (2, UNJUDGED),
    "tests/cluster/roll.py": (3, "a step of a rolled release lasts so long"),
    "tests/cluster/test_proof_groups.py": (1, "the pace of the kills"),
    "tests/cluster/test_proof_homes.py": (1, "the server stays away for so long"),
    "tests/cluster/test_proof_keys.py": (1, "the pace of the kills"),
    "tests/cluster/test_schedules.py": (9, UNJUDGED),
    "tests/conformance/test_service_results.py": (2, UNJUDGED),
    "tests/dashboard/test_history_of_server.py": (2, UNJUDGED),
    "tests/dashboard/test_job_pages.py": (1, UNJUDGED),
    "tests/faults/test_redis_cluster.py": (2, UNJUDGED),
    "tests/faults/test_sentinels.py": (1, UNJUDGED),
    "tests/faults/test_stalls.py": (1, UNJUDGED),
    "tests/flows/test_payroll_kills.py": (1, UNJUDGED),
    "tests/kits/rows_access.py": (1, "the right is away for so long"),
    "tests/server/test_client_calls.py": (3, UNJUDGED),
    "tests/server/test_client_end_of_waits.py": (1, UNJUDGED),
    "tests/server/test_client_failures.py": (1, UNJUDGED),
    "tests/server/test_client_restarts.py": (1, UNJUDGED),
    "tests/server/test_deliveries.py": (2, UNJUDGED),
    "tests/server/test_dequeue_from_queues.py": (1, UNJUDGED),
    "tests/server/test_descriptors.py": (1, UNJUDGED),
    "tests/server/test_full_stores.py": (1, UNJUDGED),
    "tests/server/test_http_process.py": (1, UNJUDGED),
    "tests/server/test_processes.py": (2, UNJUDGED),
    "tests/server/test_processes_supervised.py": (1, UNJUDGED),
    "tests/server/test_tls.py": (1, UNJUDGED),
    "tests/server/toy_worker.py": (1, "a worker that hangs"),
    "tests/soak/viewers.py": (2, "the pace of a browser, and of what reads metrics"),
    "tests/unit/test_child_process.py": (1, UNJUDGED),
    "tests/unit/test_sql_postgres.py": (5, UNJUDGED),
    "tests/workers/apps/holding.py": (1, "what a module takes to import"),
    "tests/workers/apps/pool_harm.py": (3, "jobs that do not end by themselves"),
    "tests/workers/apps/pool_stubborn.py": (2, "jobs that do not end by themselves"),
    "tests/workers/apps/proof_jobs.py": (1, "a job that is longer than its claim"),
    "tests/workers/beaten_worker.py": (2, "a worker that does nothing else"),
    "tests/workers/test_heartbeat.py": (1, UNJUDGED),
    "tests/workers/test_worker_batches.py": (1, UNJUDGED),
    "tests/workers/test_worker_polls.py": (3, UNJUDGED),
    "tests/workers/test_worker_recovery.py": (2, UNJUDGED),
    "tests/workers/test_worker_stops.py": (1, UNJUDGED),
}
"""How many sleeps of a constant time of SHORT_S and more (between two questions: PAUSE_S) a test file has, and why."""

SHORT_S, PAUSE_S = 0.1, 0.6
NO_TESTS_OF_THE_CLOCK = ("tests/bench/", "tests/simulation/")
"""Measures, whose rounds have a length, and virtual time."""


def sleeps(tree: ast.Module) -> Iterator[tuple[int, float]]:
    """Lines that sleep for a time that is written there, or that a name of the module stands for; without the pauses of
    a loop that asks again.
    """
    asking = {node for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    names = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep":
            for time in node.args[:1]:
                value = names.get(time.id) if isinstance(time, ast.Name) else getattr(time, "value", None)
                if isinstance(value, int | float) and value >= (PAUSE_S if node in asking else SHORT_S):
                    yield node.lineno, value


def test_tests_ask_again_instead_of_sleeping() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith(NO_TESTS_OF_THE_CLOCK):
            lines = [f"line {line}: {time} s" for line, time in sleeps(ast.parse(path.read_text(encoding="utf-8")))]
            if lines:
                found[name] = lines
    more = {path: lines for path, lines in found.items() if len(lines) > SLEEPS.get(path, (0, ""))[0]}
    assert more == {}, f"hold the clock, wait for an event, or ask again until it is so (a pause below {PAUSE_S} s)"
    fewer = {path: most for path, (most, _) in SLEEPS.items() if len(found.get(path, ())) < most}
    assert fewer == {}, "needed no more: lower these counts in tests/packaging/test_house.py"
