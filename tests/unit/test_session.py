"""The sandbox boundary: what student code sees, what comes back, and what happens when it hangs or dies."""

import copy
import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import COURSE, printed

from autograder.checks.framework import StudentError, differentiating
from autograder.grading.marking.stand_ins import as_function
from autograder.grading.sandbox.limits import Budget, Limits
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.script.answer import by_student
from autograder.script.context import watched
from autograder.script.question import Local

pytestmark = [pytest.mark.isolation, pytest.mark.xdist_group("sandbox")]
# Only tests of memory or processes reach a limit of ROOMY, however slow the machine. Code in HURRIED's sandbox either
# certainly exceeds its budget or needs next to nothing.
ROOMY = Limits(cell_cpu=300.0, call_cpu=300.0, total_cpu=3000.0, total_idle=3000.0, memory=2**30)
HURRIED = Limits(
    cell_cpu=1.0, call_cpu=1.0, retry=0.5, patience=6.0, memory=2**30
)  # the last backstop: 90 s for that one CPU second


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(limits=ROOMY) as running:
        yield running


@pytest.fixture(scope="module")
def hurried_sandbox() -> Iterator[Sandbox]:
    with Sandbox(limits=HURRIED) as running:
        yield running


@pytest.fixture
def session(sandbox: Sandbox) -> Iterator[Session]:
    with closing(Session(sandbox, {"lab.py": "NUMBER = 7\n"}, seed=3)) as opened:
        yield opened


@contextmanager
def watching(*values: Any) -> Iterator[None]:
    token = watched.set(values)
    try:
        yield
    finally:
        watched.reset(token)


@pytest.fixture
def hurried(hurried_sandbox: Sandbox) -> Iterator[Session]:
    with closing(Session(hurried_sandbox, {}, seed=3)) as opened:
        yield opened


def test_cells_share_a_namespace_and_released_files_are_there(session: Session) -> None:
    session.execute("a", "import lab\nx = lab.NUMBER + 1")
    assert printed(session, "print(x)") == "8\n"


SLOPES = {
    "plain": ("return x * y.sin()", None),
    "the second of two": ("return y, x ** 3 * y", 1),
    "cut": ("return (x * y).detach()", None),
    "of another argument": ("return y.requires_grad_() * 2", None),
    "whole numbers": ("return [1, x.long()]", 1),
}


@pytest.mark.parametrize("name", SLOPES)
def test_a_gradient_that_comes_with_the_call_is_the_one_that_would_have_been_asked_for(
    session: Session, name: str
) -> None:
    body, place = SLOPES[name]
    source = f"def f(x, y):\n    {body}"
    session.execute("a", source)
    here: dict = {}
    exec(source, here)
    probe = differentiating(torch.tensor([1.0, 2.0, -3.0]), torch.tensor([0.3, 0.2, 5.0]), place=place)
    remote = session.lookup(["f"])["f"]
    before = session._serial
    found = probe(remote)
    assert session._serial == before + 1
    assert torch.allclose(found, probe(Local(here["f"])))


@pytest.mark.parametrize("body", ["return None", "return (x,)", "return (x, 1)", "raise IndexError('none')"])
def test_where_there_is_nothing_to_differentiate_the_error_is_the_same_here_and_there(
    session: Session, body: str
) -> None:
    source = f"def f(x):\n    {body}"
    session.execute("a", source)
    here: dict = {}
    exec(source, here)
    probe = differentiating(torch.ones(2), place=1)
    errors = []
    for f in (session.lookup(["f"])["f"], Local(here["f"])):
        with pytest.raises(Exception) as raised:
            probe(f)
        errors.append(by_student(raised.value).type_names[0])
    assert errors[0] == errors[1]


def test_the_first_tensor_on_the_other_device_imports_nothing(session: Session) -> None:
    """Otherwise torch would spend half a second on importing sympy, to find out that the tensor is no DTensor."""
    made = "import sys, torch\nx = torch.ones(2).to('simulated')\ny = (x + x).cpu()\n"
    assert printed(session, made + "print('sympy' in sys.modules)") == "False\n"


def test_what_the_server_has_imported_is_each_submission_s_own(sandbox: Sandbox) -> None:
    helpers = {"first.py": "import second\nstate = []\n", "second.py": "twice = lambda n: 2 * n\n"}
    sandbox.import_helpers(helpers)
    asked = "import os, sys, first\nwas = 'first' in sys.modules\nfirst.state.append(1)\n"
    asked += "print(first.second.twice(len(first.state)), first.__file__ == os.path.abspath('first.py'))\n"
    for files, shown in (
        (helpers, "2 True\n"),
        (helpers, "2 True\n"),  # unchanged by the submission before
        (helpers | {"second.py": "twice = lambda n: 7 * n\n"}, "7 True\n"),
    ):
        with closing(Session(sandbox, files, 0)) as session:
            assert session.execute("a", asked).outputs[0]["text"] == shown


def test_a_file_beside_the_notebook_may_be_called_like_a_part_of_the_sandbox(sandbox: Sandbox) -> None:
    added = "import helper_modules, tensors\nprint(tensors.NUMBER + helper_modules.NUMBER)"
    with closing(Session(sandbox, {"tensors.py": "NUMBER = 8\n", "helper_modules.py": "NUMBER = 9\n"}, 0)) as session:
        assert printed(session, added) == "17\n"
        assert session.execute("b", "import torch\nx = torch.ones(2)").error is None


@pytest.mark.parametrize("text", ["raise ValueError\n", "import torch\ntorch.cuda.is_available()\n", "1 +\n"])
def test_what_the_server_cannot_import_is_left_to_the_notebook(sandbox: Sandbox, text: str) -> None:
    files = {"good.py": "import torch\n", "other.py": "import third\n" + text, "third.py": "NUMBER = 3\n"}
    sandbox.import_helpers(files)
    cell = "import sys\nbefore = 'other' in sys.modules\ntry:\n    import other\nexcept Exception as error:\n    pass\nprint(before)"
    with closing(Session(sandbox, files, 0)) as session:
        assert session.execute("a", cell).outputs[0]["text"] == "False\n"
    with closing(Session(sandbox, files | {"third.py": "NUMBER = 4\n"}, 0)) as session:
        assert printed(session, "import third\nprint(third.NUMBER)") == "4\n"


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        ("import asyncio\nprint(await asyncio.sleep(0, 3))", "3\n"),
        ("%%capture shown\nprint(5)", ""),
        ("In [1]: x = 3\nIn [2]: print(x)", "3\n"),
        ("x = 4\n%precision 2\nprint(x)", "4\n"),
        ("\n    # a comment\n\nprint('as it is')\n", "as it is\n"),
        ("print(1)\nprint(2)\n\n\n", "1\n2\n"),
    ],
)
def test_a_cell_runs_as_in_jupyter(session: Session, cell: str, printed: str) -> None:
    shown = session.execute("a", cell)
    assert shown.error is None
    assert "".join(output.get("text", "") for output in shown.outputs if output.get("name") == "stdout") == printed


def test_nothing_of_the_course_is_visible(session: Session) -> None:
    text = printed(
        session,
        """
import os, sys, importlib.util
print(importlib.util.find_spec('autograder'), os.listdir('/proc'), sorted(os.environ))
seen = [os.path.join(d, f) for r in ('/sandbox', '/tmp') for d, _, fs in os.walk(r) for f in fs if 'autograder' in f or f.startswith('week')]
seen = [path for path in seen if '/nbgrader/' not in path]
print([path for path in seen if os.path.isfile(path) and os.path.getsize(path)])
print(os.path.exists('/home') and os.listdir('/home'), os.path.exists('/etc/passwd'))
""",
    )
    assert text.splitlines()[0].startswith("None []") and text.splitlines()[1:] == ["[]", "False False"]
    assert "HOSTNAME" not in text and "AUTOGRADER" not in text


@pytest.mark.slow
def test_the_fonts_of_the_machine_are_known_from_the_list_that_matplotlib_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import font_manager

    fonts = font_manager.FontManager.__new__(font_manager.FontManager)
    fonts.__dict__ |= font_manager.fontManager.__dict__
    of_all, of_one = fonts.ttflist[0], dataclasses.replace(fonts.ttflist[0], fname="/home/ada/a.ttf", name="For one")
    fonts.ttflist = [of_all, dataclasses.replace(of_all, name="For all"), of_one]
    font_manager.json_dump(fonts, tmp_path / f"fontlist-v{font_manager.FontManager.__version__}.json")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    names = "import matplotlib.font_manager as f; print(sorted({font.name for font in f.fontManager.ttflist}))"
    with Sandbox(limits=ROOMY) as sandbox, closing(Session(sandbox, {}, seed=3)) as session:
        assert printed(session, names) == f"{sorted([of_all.name, 'For all'])}\n"


def test_no_network_no_writing_outside_tmp_no_new_privileges(session: Session) -> None:
    text = printed(
        session,
        """
import os, socket
def attempt(f):
    try:
        return f()
    except OSError as error:
        return type(error).__name__
print(attempt(lambda: socket.create_connection(('127.0.0.1', 80), 1)), attempt(lambda: open('/usr/x', 'w')),
      attempt(lambda: open('/sandbox/worker/fork_server.py', 'a')), attempt(lambda: os.mkdir('/x')))
import ctypes
print(ctypes.CDLL(None).mount(b'tmpfs', b'/usr', b'tmpfs', 0, None))
import resource
print(resource.getrlimit(resource.RLIMIT_NPROC)[1])  # holds where no memory group counts processes
open('/tmp/mine', 'w').write('ok')
""",
    )
    assert text.split() == ["OSError", "OSError", "OSError", "OSError", "-1", str(session.limits.processes)]


@pytest.mark.nightly
@pytest.mark.slow
def test_no_place_is_writable_that_another_submission_could_read(session: Session) -> None:
    text = printed(
        session,
        """
import os
for folder, _, _ in os.walk('/'):
    try:
        open(os.path.join(folder, 'x'), 'w').close()
        os.unlink(os.path.join(folder, 'x'))
        print(folder)
    except OSError:
        pass
""",
    )
    assert {folder.split("/")[1] for folder in text.split()} == {"tmp", "dev"}
    assert [folder for folder in text.split() if folder.startswith("/dev")] == ["/dev/shm"]


@pytest.mark.slow
def test_nothing_has_its_times_or_rights_changed_that_another_submission_could_see(session: Session) -> None:
    """The tests often run as root, which owns the machine's devices."""
    text = printed(
        session,
        """
import os
for folder, folders, files in os.walk('/'):
    for path in (os.path.join(folder, name) for name in folders + files):
        for change in (lambda: os.utime(path, follow_symlinks=False), lambda: os.chmod(path, 0o777)):
            try:
                change()
                print(path)
            except OSError:
                pass
""",
    )
    own = ("/tmp/", "/dev/shm", "/dev/pts", "/dev/ptmx")
    assert [path for path in text.split() if path != "/tmp" and not path.startswith(own)] == []


def test_nobody_lowers_the_limits_by_which_the_kernel_kills(session: Session) -> None:
    refused = session.execute("a", "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))").error
    assert refused is not None and refused.type_names[0] in ("PermissionError", "OSError", "ValueError")
    assert printed(session, "print(resource.getrlimit(resource.RLIMIT_CORE))") == "(0, 0)\n"


def test_terminals_and_leases_are_not_taken_from_others(session: Session) -> None:
    """A machine has a limited number of terminals; opening a leased file blocks until the lease is given up."""
    taken = """
import fcntl, os, torch
held = []
try:
    while len(held) < 100: held += os.openpty()
except OSError:
    pass
print(0 < len(held) < 100)
with open(torch.__file__) as file:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        print('leased')
    except PermissionError:
        print('refused')
"""
    assert printed(session, taken) == "True\nrefused\n"


def test_submissions_do_not_see_each_other(sandbox: Sandbox) -> None:
    leaks = "open('/tmp/secret', 'w').write('x'); open('/dev/shm/secret', 'w').write('x'); import builtins; builtins.leak = 1; import torch; torch.leak = 1"
    looks = "os.path.exists('/tmp/secret') or os.path.exists('/dev/shm/secret'), hasattr(builtins, 'leak'), hasattr(torch, 'leak')"
    with closing(Session(sandbox, {}, 0)) as first, closing(Session(sandbox, {}, 0)) as second:
        first.execute("a", leaks)
        assert printed(second, f"import os, builtins, torch; print({looks})") == "False False False\n"


def test_the_connection_is_the_only_socket(session: Session) -> None:
    """Over the server's own socket a student could end and fork processes."""
    sockets = """
import os, stat
for fd in range(256):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode): print('a socket')
    except OSError: pass
"""
    assert printed(session, sockets) == "a socket\n"


def test_a_signal_to_the_process_group_reaches_nobody_else(sandbox: Sandbox) -> None:
    with closing(Session(sandbox, {}, 0)) as first, closing(Session(sandbox, {}, 0)) as second:
        first.execute("a", "import os\nos.kill(0, 19)\nos.kill(0, 9)")
        assert printed(second, "print(1)") == "1\n"
        with closing(Session(sandbox, {}, 0)) as third:
            assert printed(third, "print(3)") == "3\n"


def test_random_numbers_are_the_same_for_everybody(sandbox: Sandbox) -> None:
    texts = []
    draws = "import torch, random, numpy as np; print(torch.rand(1).item(), random.random(), np.random.rand())"
    for _ in range(2):
        with closing(Session(sandbox, {}, 5)) as session:
            texts.append(printed(session, draws))
    assert texts[0] == texts[1]


def test_values_functions_classes_and_gradients_cross(session: Session) -> None:
    session.execute(
        "a",
        """
import torch
answers = {'a': 1.5, 'b': None}
def double(x, times=2): return x * times
class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, n, bias=False)
    def forward(self, x): return self.linear(x)
def apply(f, x): return f(x) + 1
""",
    )
    found = session.lookup(["answers", "double", "Net", "apply", "missing"])
    assert set(found) == {"answers", "double", "Net", "apply"} and found["answers"] == {"a": 1.5, "b": None}
    x = torch.randn(2, 3, requires_grad=True)
    y = found["double"](x, times=3)
    assert torch.equal(y, x * 3) and torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((2, 3), 3.0))
    net = found["Net"](3)
    weight = torch.randn(3, 3)
    net.load_state_dict({"linear.weight": weight})
    assert torch.allclose(net(x), x @ weight.T) and list(net.state_dict()) == ["linear.weight"]
    gradient = torch.autograd.grad(net(x).sum(), x)[0]
    assert torch.allclose(gradient, weight.sum(0).expand(2, 3), atol=1e-6)
    assert torch.equal(found["apply"](lambda t: t * 5, torch.ones(2)), torch.full((2,), 6.0))


def test_a_cell_changes_neither_the_dtype_nor_the_precision_of_what_a_test_computes(session: Session) -> None:
    """Otherwise "medium" would round the factors of a product to bfloat16 on processors that support it."""
    settings = "torch.get_default_dtype(), torch.get_float32_matmul_precision()"
    session.execute(
        "set", "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_float32_matmul_precision('medium')"
    )
    session.execute("cell", f"def asked(): return str(({settings}))")
    assert session.lookup(["asked"])["asked"]() == "(torch.float32, 'highest')"
    assert printed(session, f"print({settings})") == "torch.float64 medium\n"


def test_who_has_switched_gradients_off_pays_for_it_in_one_test(session: Session) -> None:
    """Cells keep the gradient mode that earlier cells have set; the tests after each cell start with gradients on."""
    mode = "torch.is_grad_enabled()"
    session.execute("a", f"import torch\ndef switched_off(): torch.set_grad_enabled(False)\ndef mode(): return {mode}")
    found = session.lookup(["switched_off", "mode"])
    found["switched_off"]()
    assert found["mode"]() is False
    assert printed(session, f"print({mode})") == "True\n" and found["mode"]() is True
    session.execute("b", "torch.set_grad_enabled(False)")
    assert found["mode"]() is True and printed(session, f"print({mode})") == "False\n"


def test_in_place_changes_are_seen(session: Session) -> None:
    session.execute("a", "def spoil(x):\n    x += 1\n    return x * 0")
    x = torch.zeros(3)
    session.lookup(["spoil"])["spoil"](x)
    assert torch.equal(x, torch.zeros(3))
    with watching(x):
        session.lookup(["spoil"])["spoil"](x)
    assert torch.equal(x, torch.ones(3))


def test_a_module_is_made_and_loaded(session: Session) -> None:
    session.execute(
        "a",
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.q_proj, self.other = nn.Linear(width, width), nn.Linear(width, 1)\n"
        "    def forward(self, x):\n        return self.q_proj(x)",
    )
    net = session.lookup(["Net"])["Net"]
    weight, x = torch.randn(3, 3), torch.randn(2, 3)
    made = net.made({"weights": {"q_proj.weight": weight}, "zeroed": ["q_proj.bias"]}, 3)
    made.eval()
    made.to(dtype=torch.float64)
    out = made(x.double())
    assert torch.allclose(out, x.double() @ weight.T.double())
    assert set(made.state_dict()) == {"q_proj.weight", "q_proj.bias", "other.weight", "other.bias"}
    made.to(torch.float32)
    assert torch.allclose(made(x), x @ weight.T)
    with pytest.raises(StudentError, match="the state_dict has no 'k_proj.weight'"):
        net.made({"weights": {"k_proj.weight": weight}, "zeroed": []}, 3)
    with pytest.raises(StudentError, match="missing 1 required positional argument"):
        net.made({"weights": {"q_proj.weight": weight}, "zeroed": []})


def test_a_table_is_loaded_whatever_it_is_called(session: Session) -> None:
    session.execute(
        "a",
        "from torch import nn\nclass Table(nn.Module):\n    def __init__(self, n, d):\n        super().__init__()\n"
        "        self.turned = nn.Parameter(torch.zeros(d, n))\n        self.more = nn.Linear(d * n, 1) if n == 2 else None\n"
        "    def forward(self, x):\n        return x + self.turned.T[: len(x)]\nimport torch",
    )
    table, rows = session.lookup(["Table"])["Table"], torch.randn(4, 3)
    module = table.made({"rows": rows}, *rows.shape)
    assert torch.equal(module(torch.zeros(2, 3)), rows[:2])
    assert set(module.state_dict()) == {"turned"}
    with pytest.raises(StudentError, match="several tensors of max_len"):
        table.made({"rows": torch.randn(2, 3)}, 2, 3)


def test_a_module_that_cannot_be_called_is_no_module(session: Session) -> None:
    session.execute(
        "a",
        "class Odd:\n    def state_dict(self):\n        return {}\n    def load_state_dict(self, state):\n        pass",
    )
    with pytest.raises(StudentError, match="cannot be called"):
        session.lookup(["Odd"])["Odd"].made({"weights": {}, "zeroed": []})


@pytest.mark.parametrize(
    ("body", "given", "now"),
    [
        ("values.sort()", [3, 1, 2], [1, 2, 3]),
        ("values[1].insert(0, 0)", [[5], [7, 8]], [[5], [0, 7, 8]]),
        ("del values['b']", {"a": 1, "b": None}, {"a": 1}),
    ],
)
def test_a_watched_list_or_dict_is_changed_here_as_it_was_there(
    session: Session, body: str, given: Any, now: Any
) -> None:
    session.execute("a", f"def spoil(n, values):\n    {body}\n    return n")
    spoil, other, as_it_was = session.lookup(["spoil"])["spoil"], copy.deepcopy(given), copy.deepcopy(given)
    with watching(given):
        assert spoil(1, given) == spoil(1, other) == 1
    assert given == now and other == as_it_was


@pytest.mark.parametrize(
    ("reply", "now"),
    [
        ("5", [3, 1, 2]),
        ("{}", [3, 1, 2]),
        ("[5]", [3, 1, 2]),
        ("[None]", [3, 1, 2]),
        ("[{'l': [7, {'l': []}]}]", [7, []]),
        ("[{'d': [['a', 1]]}]", [3, 1, 2]),
    ],
)
def test_what_a_student_s_process_says_of_a_list_is_only_data(session: Session, reply: str, now: list) -> None:
    session.execute(
        "a",
        "def f(n, values):\n"
        "    book = next(o for o in __import__('gc').get_objects() if type(o).__name__ == 'Notebook')\n"
        "    old = book.connection.send\n"
        f"    book.connection.send = lambda header, payload=b'': old(header | {{'plain': {reply}}}, payload)\n"
        "    return n\n",
    )
    values = [3, 1, 2]
    with watching(values), suppress(StudentError):  # nonsense may be the student's error
        assert session.lookup(["f"])["f"](1, values) == 1
    assert values == now


@pytest.mark.parametrize(
    ("returned", "second"), [("torch.zeros(2)", [0.0, 0.0]), ("kept", [1.0, 1.0]), ("kept[:1].expand(2)", [0.0, 0.0])]
)
def test_whether_a_result_is_handed_out_twice_is_seen(session: Session, returned: str, second: list[float]) -> None:
    """An expanded view cannot be written to, so nobody can overwrite what it shows."""
    session.execute("a", f"import torch\nkept = torch.zeros(2)\ndef f(n):\n    return {returned}")
    assert session.lookup(["f"])["f"].called_again(2).tolist() == second


def test_an_exception_is_plain_text_with_its_line(session: Session) -> None:
    run = session.execute("a", "x = 1\nraise KeyError('no such thing')")
    assert run.error.type_names[:2] == ("KeyError", "LookupError") and "line 2" in run.error.describe()
    assert session.execute("b", "x = = 1").error.describe() == "SyntaxError: invalid syntax (line 1)"
    assert session.execute("c", "raise ValueError('x' * 5_000_000)").error.type_names[0] == "ValueError"  # cut short


STUBS = {
    "    # YOUR CODE HERE\n    raise NotImplementedError": True,
    "    if x:\n        raise NotImplementedError  # later": True,
    "    raise NotImplementedError('odd')": False,
    "    return torch.distributions.Distribution.mean.fget(x)": False,  # raised by the library that it calls
}


@pytest.mark.parametrize("body", STUBS)
def test_only_the_stub_s_own_raise_means_that_an_answer_is_missing(session: Session, body: str) -> None:
    session.execute("a", f"import torch\ndef f(x):\n{body}")
    with pytest.raises(StudentError) as caught:
        session.lookup(["f"])["f"](1)
    assert caught.value.type_names[0] == "NotImplementedError" and caught.value.where
    assert caught.value.means_unanswered == STUBS[body]


@pytest.mark.timing
def test_cpu_time_decides_and_wall_clock_is_the_backstop(hurried: Session) -> None:
    assert "CPU time" in hurried.execute("a", "while True: pass").error.message
    assert "waited for more than 6 seconds" in hurried.execute("b", "import time; time.sleep(3600)").error.message
    assert "CPU time" in hurried.execute("c", "import os\nfor _ in range(3): os.fork()\nwhile True: pass").error.message


@pytest.mark.timing
def test_memory_counts_over_all_processes(session: Session) -> None:
    """Each of the four processes has less than the limit, and all wait until their memory has been measured."""
    run = session.execute(
        "a",
        "import os, time\nfor _ in range(2): os.fork()\n"
        "x = bytearray(400 * 2**20); x[::4096] = bytes(102400)\ntime.sleep(3600)",
    )
    assert run.error.type_names[0] == "MemoryError" and "GB of memory" in run.error.message


def test_too_many_crashes_end_a_function_and_cost_no_other(session: Session) -> None:
    session.execute(
        "a", "import os\ndef f(): os._exit(1)\nclass C:\n    def __call__(self): os._exit(1)\ndef g(): return 5"
    )
    found = session.lookup(["f", "C", "g"])
    for call in (found["f"], lambda: found["C"]()()):
        for _ in range(ROOMY.restarts + 1):
            with pytest.raises(StudentError, match="ended the Python process"):
                call()
        with pytest.raises(StudentError, match="too often"):
            call()
    assert found["g"]() == 5


@pytest.mark.parametrize("body", ["return bytearray(10**11)", "return torch.empty(10**11)"])
def test_what_was_refused_memory_is_not_called_by_others(session: Session, body: str) -> None:
    """Called again, it might be killed or run out of time instead: chance must not decide who pays for it."""
    session.execute("a", f"import torch\ndef hoards(): {body}\ndef caller(): return hoards()")
    found = session.lookup(["hoards", "caller"])
    with pytest.raises(StudentError):
        found["hoards"]()
    assert session.crashes.functions == {"hoards"}
    with pytest.raises(StudentError, match="not called again"):
        found["caller"]()


def test_too_many_crashes_end_the_notebook(session: Session) -> None:
    for number in range(ROOMY.all_restarts + 1):
        assert "ended the Python process" in session.execute(f"a{number}", "import os; os._exit(1)").error.message
    assert "too often" in session.execute("b", "1").error.message


@pytest.mark.timing
@pytest.mark.parametrize("offence", ["while True: pass", "import os, time; os.fork(); time.sleep(3600)"])
def test_a_cell_that_hangs_costs_only_itself(hurried: Session, offence: str) -> None:
    assert_costs_only_itself(hurried, offence)


@pytest.mark.parametrize(
    "offence",
    ["import os; os._exit(1)", "raise SystemExit", "import ctypes; ctypes.string_at(0)", "x = bytearray(10**11)"],
)
def test_a_cell_that_dies_costs_only_itself(session: Session, offence: str) -> None:
    assert_costs_only_itself(session, offence)


def assert_costs_only_itself(session: Session, offence: str) -> None:
    session.execute("a", "def f(): return 41")
    assert session.execute("b", offence).error is not None
    session.execute("c", "def g(): return f() + 1")
    assert session.lookup(["g"])["g"]() == 42


# The child attacks when the next cell runs, and that cell waits for the attack: no clock is involved. If the sandbox
# has been restarted without the first cell, /tmp is new and there is nothing to wait for.
LATE = """
import os, time
os.mkfifo('/tmp/next_cell_runs')
if not os.fork():
    open('/tmp/next_cell_runs').read()
    try:
        {offence}
        time.sleep(3600)
    finally:
        os._exit(0)
def early(): return 1
"""
HONEST = """
import os, time
if os.path.exists('/tmp/next_cell_runs'):
    open('/tmp/next_cell_runs', 'w').close()
    time.sleep(3600)
def g(x): return x + 2
"""


@pytest.mark.timing
@pytest.mark.parametrize(
    "offence",
    [
        "[os.fork() for _ in range(7)]",
        "os.fork(); os.fork(); x = bytearray(400 * 2**20); x[::4096] = bytes(102400)",
        """for fd in range(3, 30):
            try: os.write(fd, b'x' * 99)
            except OSError: pass""",
    ],
    ids=["processes", "memory", "garbage"],
)
def test_what_a_cell_leaves_running_costs_that_cell_only(session: Session, offence: str) -> None:
    assert session.execute("before", "def f(x): return x + 1").error is None
    assert session.execute("trouble", LATE.format(offence=offence)).error is None
    assert session.execute("honest", HONEST).error is None
    found = session.lookup(["f", "g", "early"])
    assert found["f"](1) == 2 and found["g"](1) == 3 and "early" not in found


def test_threads_that_take_all_room_cost_the_cell_that_left_them_only(session: Session) -> None:
    """Each thread maps a stack, and mapped memory is limited, so the next request would find no room."""
    session.execute("before", "def f(x): return x + 1")
    fills = """
import mmap, threading, time
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
room, size = [], 2**30
while size >= 2**20:
    try: room.append(mmap.mmap(-1, size))
    except OSError: size //= 2
"""
    assert session.execute("fills", fills).error is None
    large = torch.zeros(2**22)
    assert session.lookup(["f"])["f"](large).sum() == 2**22


@pytest.mark.parametrize(("sent", "timer"), [("ALRM", "REAL"), ("VTALRM", "VIRTUAL"), ("PROF", "PROF")])
def test_an_alarm_ends_with_the_cell_that_set_it(session: Session, sent: str, timer: str) -> None:
    sets = f"signal.signal(signal.SIG{sent}, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_{timer}, 0.3, 0.01)"
    assert session.execute("sets", f"import signal, time\n{sets}").error is None
    works = "start = time.process_time()\nwhile time.process_time() < start + 0.5: pass\n"
    assert session.execute("works", f"{works}def f(x): return x + 1").error is None
    assert session.lookup(["f"])["f"](1) == 2 and session.generation == 0


def test_more_processes_are_laid_to_the_cell_that_had_left_some_before(session: Session) -> None:
    """A tree of processes may keep growing while an honest cell runs."""
    leaves = "import subprocess\nchild = subprocess.Popen(['sleep', '3600'])"
    for cell in ("first", "second"):
        assert session.execute(cell, leaves).error is None
    assert session._cells_with_orphans == {("first", leaves)}


def test_an_error_of_the_cell_itself_is_not_charged_to_one_that_left_a_process(session: Session) -> None:
    session.execute("leaves", "import subprocess\nchild = subprocess.Popen(['sleep', '3600'])\ndef f(): return 1")
    assert session.execute("dies", "import os\nos._exit(0)").error is not None
    assert session.lookup(["f"])["f"]() == 1


BEHIND_THE_WORKER = """
import gc, json, struct, sys, time
def send(**header):
    text = json.dumps(header).encode()
    connection = next(one for one in gc.get_objects() if type(one).__name__ == 'Connection')
    connection.sock.sendall(struct.pack('!II', len(text), 0) + text)
def naps(given):
    for _ in range(900):
        time.sleep(0.2)
        given(1)
def asks_and_does_not_read(given):
    send(callback=0, args={'l': []}, kwargs={'d': []})
    time.sleep(3600)
def answers_and_does_not_read(serial):
    send(serial=serial, value=1)
    time.sleep(3600)
"""


@pytest.mark.parametrize("reply", ["call=1e999", "call='1'", "changed=[[1e999, None]]", "changed=[[None, None]]"])
def test_a_number_that_is_none_is_no_answer(session: Session, reply: str) -> None:
    session.execute("a", BEHIND_THE_WORKER + f"def f(serial):\n    send(serial=serial, value=1, {reply})")
    with pytest.raises(StudentError, match="could not be read"):
        session.lookup(["f"])["f"](session._serial + 1)


def test_a_reply_sent_ahead_of_the_question_is_no_answer(session: Session) -> None:
    session.execute("a", BEHIND_THE_WORKER + "def f(serial):\n    send(serial=serial, value=1)")
    with pytest.raises(StudentError, match="could not be read"):
        session.lookup(["f"])["f"](session._serial + 2)


def test_a_line_number_says_nothing_else(session: Session) -> None:
    failed = "error=dict(types=['ValueError'], message='m', line={})"
    session.execute(
        "a", BEHIND_THE_WORKER + "def f(serial, line):\n    send(serial=serial, " + failed.format("line") + ")"
    )
    for line, where in ((3, "line 3"), (-3, ""), (10**6, ""), (2**62, "")):
        with pytest.raises(StudentError) as raised:
            session.lookup(["f"])["f"](session._serial + 1, line)
        assert raised.value.where == where
        session._abandon()


def test_what_was_done_to_a_lent_mask_is_true_or_false(session: Session) -> None:
    session.execute("a", "import torch\ndef f(keep):\n    keep.view(torch.uint8).add_(torch.tensor([6, 6]))")
    keep = torch.tensor([True, False])
    with watching(keep):
        session.lookup(["f"])["f"](keep)
    assert keep.view(torch.uint8).tolist() == [1, 1]


@pytest.mark.nightly
@pytest.mark.timing
@pytest.mark.parametrize("name", ["naps", "asks_and_does_not_read"])
def test_who_waits_between_two_messages_or_for_room_has_waited(hurried: Session, name: str) -> None:
    hurried.execute("a", BEHIND_THE_WORKER)
    f = hurried.lookup([name])[name]
    with pytest.raises(StudentError, match="waited for more than 6 seconds"):
        f(lambda *given: torch.zeros(2**20))


def nightly(*names: str) -> list[Any]:
    """Return variants of the same failure as nightly parameters."""
    return [pytest.param(name, marks=pytest.mark.nightly) for name in names]


HOW_TO_END = {
    "hangs": "while True: pass",
    "waits": "import time; time.sleep(3600)",
    "exits": "import os; os._exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "hides": "import os; os.fork() or os.setsid(); import time; time.sleep(3600)",
}


@pytest.mark.timing
@pytest.mark.parametrize("how", ["hangs", "exits", *nightly("waits", "crashes", "hides")])
def test_what_hangs_or_dies_is_forgiven_as_often_whatever_it_does(hurried: Session, how: str) -> None:
    hurried.execute("a", f"def f():\n    {HOW_TO_END[how]}\ndef g(): return 1")
    found = hurried.lookup(["f", "g"])
    for number in range(HURRIED.restarts + 2):
        with pytest.raises(StudentError) as raised:
            hurried.lookup(["f"])["f"]()  # as its visible check and its hidden test look it up
        assert "not called again" not in raised.value.message
        assert ("too often" in raised.value.message) == (number > HURRIED.restarts)
    assert found["g"]() == 1


# Ways to use what hangs: a plain caller, one that catches everything, and a subclass.
CALLERS = """
def caller(n):
    return hangs(n)
def catcher(n):
    try:
        return hangs(n)
    except Exception as error:
        return str(error)
class Heir(Hangs):
    pass
"""


@pytest.mark.timing
@pytest.mark.parametrize("how", ["hangs", "exits", *nightly("waits", "crashes", "hides")])
def test_what_has_hung_or_died_raises_whoever_calls_it(hurried: Session, how: str) -> None:
    source = f"def hangs(n):\n    if n == 1:\n        {HOW_TO_END[how]}\n    return hangs(1) if n == 2 else n\n"
    source += f"class Hangs:\n    def __init__(self, n):\n        {HOW_TO_END[how]}"
    hurried.execute("a", source)
    hangs, cls = hurried.lookup(["hangs", "Hangs"]).values()
    for call in (hangs, cls):
        with pytest.raises(StudentError):
            call(1)
    assert hurried.crashes.functions == {"hangs", "Hangs"}
    assert "not called again" in hurried.execute("b", "hangs(3)").error.message
    assert hurried.execute("c", CALLERS).error is None
    generation, found = hurried.generation, hurried.lookup(["caller", "catcher", "Heir"])
    for name in ("caller", "Heir"):
        with pytest.raises(StudentError, match="not called again"):
            found[name](3)
    assert "not called again" in found["catcher"](3)
    assert hangs(3) == 3, "its own test may go on"
    with hurried.replacing({"hangs": lambda n: 10 * n}):
        assert found["caller"](3) == 30
    with pytest.raises(StudentError, match="not called again"):
        found["caller"](3)
    assert hurried.generation == generation, "and nothing of this ends a process"
    hurried.crashes.retire_functions()
    for call in (hangs, cls):
        with pytest.raises(StudentError, match="too often"):
            call(3)
    assert hurried.generation == generation


@pytest.mark.timing
def test_what_is_set_aside_stays_so_in_a_new_process_and_when_it_is_defined_anew(hurried: Session) -> None:
    hurried.execute("a", "import os\ndef f(n): os._exit(0)\ndef g(n):\n    os._exit(0) if n == 1 else f(n)")
    f, g = hurried.lookup(["f", "g"]).values()
    for call in (f, g):
        with pytest.raises(StudentError, match="ended the Python process"):
            call(1)
    with pytest.raises(StudentError, match="f hung or crashed"):
        g(2)
    hurried.execute("b", "def f(n): return 5")
    with pytest.raises(StudentError, match="f hung or crashed"):
        g(2)


@pytest.mark.timing
def test_one_that_hangs_when_it_is_given_a_wrong_value_is_asked_anew_with_the_right_one(hurried: Session) -> None:
    hurried.execute("a", "def step(): return 0\ndef count(n):\n    while n > 0: n -= step()\n    return n")
    count = hurried.lookup(["count"])["count"]
    for _ in range(HURRIED.restarts + 1):
        with pytest.raises(StudentError, match="CPU time"):
            count(3)
    with hurried.replacing({"step": lambda: 1}):
        assert count(3) == 0
    with pytest.raises(StudentError, match="too often"):
        count(3)


@pytest.mark.timing
@pytest.mark.parametrize("how", ["hangs", *nightly("waits", "naps", "works")])
def test_what_others_have_used_up_costs_no_right_answer(hurried: Session, how: str) -> None:
    """The budget may be used up at once, or little by little with an answer each time."""
    limits = dataclasses.replace(HURRIED, total_cpu=2.0, total_idle=4.0)
    bodies = {**HOW_TO_END, "naps": "time.sleep(2)", "works": "work(0.6)"}
    hurried.limits, hurried._budget = limits, Budget.of(limits)
    work = "import time\ndef work(seconds):\n    end = time.process_time() + seconds\n    while time.process_time() < end: pass\n"
    hurried.execute("a", work + "def right(n): return n\nanswers = {'a': 1}")
    for number in range(4):
        hurried.execute(f"f{number}", f"def f{number}():\n    {bodies[how]}")
        f = hurried.lookup([f"f{number}"])[f"f{number}"]
        for _ in range(8):
            with suppress(StudentError):
                f()
        hurried.crashes.retire_functions()
    assert hurried._budget.is_spent
    assert hurried.execute("b", "def late(n): return right(n) + 1").error is None
    found = hurried.lookup(["right", "late", "answers"])
    assert found["answers"] == {"a": 1} and [found["right"](n) for n in range(50)] == list(range(50))
    assert found["late"](1) == 2


@pytest.mark.timing
def test_who_does_not_read_the_next_question_has_waited(hurried: Session) -> None:
    hurried.execute("a", BEHIND_THE_WORKER)
    f = hurried.lookup(["answers_and_does_not_read"])["answers_and_does_not_read"]
    assert f(hurried._serial + 1) == 1
    assert "waited for more than 6 seconds" in hurried.execute("b", f"x = {'a' * 2**20!r}").error.message


@pytest.mark.timing
def test_what_the_given_function_costs_is_charged(hurried: Session) -> None:
    hurried.execute("a", "def f(given):\n    for _ in range(50): given(1)\n    return 1")
    f, calls = hurried.lookup(["f"])["f"], []
    assert f(lambda x: x) == 1

    def slow(x: int) -> int:
        calls.append(x)
        end = time.process_time() + HURRIED.call_cpu / 4
        while time.process_time() < end:
            pass
        return x

    with pytest.raises(StudentError, match="function it was given ran for more than 1 seconds"):
        f(slow)
    assert len(calls) <= 5


def test_no_memory_that_counts_for_nobody(session: Session) -> None:
    asks = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600))
"""
    assert printed(session, asks) == "-1 -1 -1\n"


# Lines that work in Jupyter, with a screen, an installer or somebody who clicks; each is put above an answer.
AWKWARD = [
    "%matplotlib widget",
    "%matplotlib notebook",
    "%gui qt",
    "import matplotlib\nmatplotlib.use('TkAgg')",
    "import matplotlib.pyplot as plt\nplt.switch_backend('module://ipympl.backend_nbagg')",
    "%conda install numpy",
    "%pip install numpy",
    "!pip install -q numpy",
    "%load_ext tensorboard",
    "%load_ext autoreload\n%autoreload 2",
    "%no_such_magic",
    "%config InlineBackend.figure_format = 'retina'",
    "import sys\nassert sys.stdout.fileno() == 1 and not sys.stderr.closed and sys.stdout.writable()",
    "import subprocess, sys\nsubprocess.run(['echo', 'hi'], stdout=sys.stdout, stderr=sys.stderr, check=True)",
    "import faulthandler\nfaulthandler.enable()",
    "import logging, sys\nlogging.basicConfig(stream=sys.stdout, force=True)\nlogging.warning('hi')",
    "import io, sys\nassert isinstance(sys.stdout, io.TextIOBase)\nsys.stdout.writelines(['a', 'b'])\nprint('c', file=sys.stderr, flush=True)",
]


@pytest.mark.parametrize("line", AWKWARD)
def test_what_works_in_jupyter_costs_no_answer(session: Session, line: str) -> None:
    done = session.execute("a", f"{line}\ndef f(x):\n    return x + 1")
    assert done.error is None, done.error
    assert session.lookup(["f"])["f"](1) == 2
    drawn = session.execute("b", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nplt.show()")
    assert [output["output_type"] for output in drawn.outputs if "image/png" in output.get("data", {})], (
        "figures are shown"
    )


@pytest.mark.parametrize("stop", ["breakpoint()", "from IPython.core.debugger import set_trace; set_trace()"])
def test_a_debugger_left_in_is_said_to_be_one(session: Session, stop: str) -> None:
    session.execute("a", f"def f(x):\n    {stop}\n    return x + 1")
    with pytest.raises(StudentError, match=r"remove breakpoint\(\) or set_trace\(\)"):
        session.lookup(["f"])["f"](1)
    done = session.execute("b", f"{stop}\ny = 1\ny")
    assert done.error is not None and "debugger" in done.error.describe()


def test_who_asks_for_input_is_told_that_nobody_is_there(session: Session) -> None:
    session.execute("a", "def f(x):\n    return x + int(input('how many? '))")
    with pytest.raises(StudentError, match="write the value into the code"):
        session.lookup(["f"])["f"](1)


COMPILED = """
import torch
@torch.compile
def plain(x): return x.sin() * 2
@torch.compile(mode="max-autotune", fullgraph=True)
def tuned(x): return x.sin() * 2
def function(x): return x.sin() * 2
called = torch.compile(function, backend="inductor", dynamic=True)
class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, n, bias=False)
    def forward(self, x): return self.linear(x)
Compiled = torch.compile(Net)
def layer(x):
    net = Net(2)
    net.linear.weight.data = 2 * torch.eye(2)
    net.compile()
    return torch.compile(net)(x).sin() + sum(parameter.numel() for parameter in torch.compile(net).parameters()) - 4
@torch.jit.script
def scripted(x): return x.sin() * 2
traced = torch.jit.trace(function, torch.ones(2))
"""


def test_what_is_compiled_is_called_as_it_stands(session: Session) -> None:
    assert session.execute("a", COMPILED).error is None
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    found = session.lookup(["plain", "tuned", "called", "layer", "scripted", "traced", "Compiled"])
    for name in ("plain", "tuned", "called", "scripted", "traced"):
        y = found[name](x)
        assert torch.allclose(y, 2 * x.sin()), name
        assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], 2 * x.cos()), name
    assert torch.allclose(found["layer"](x[None]), (2 * x[None]).sin())
    assert list(found["Compiled"](2).state_dict()) == ["linear.weight"]
    assert printed(session, "import sys; print('torch._inductor.compile_fx' in sys.modules)") == "False\n"


WITHOUT_IMPORTS = """
import sys
import torch
x = torch.arange(6.0).view(1, 3, 2)
torch.testing.assert_close(x, x + 1e-9)
try: torch.testing.assert_close(x, x + 1)
except AssertionError: print("differs")
attention = torch.nn.MultiheadAttention(2, 1, batch_first=True)
attention(x, x, x, key_padding_mask=torch.tensor([[False, False, True]]))
print([name for name in ("sympy", "torch.distributed.tensor", "torch.fx.experimental.symbolic_shapes") if name in sys.modules])
try: attention(x, x, x, key_padding_mask=torch.tensor([[False, True]]))
except AssertionError as error: print(str(error)[:24])
"""


def test_no_fork_imports_for_what_notebooks_do_not_have(session: Session) -> None:
    """Each of the two would take a second: in every submission that uses it."""
    assert printed(session, WITHOUT_IMPORTS) == "differs\n[]\nExpected key_padded_mask\n"


def test_proxies_offer_nothing_but_calling() -> None:
    with Sandbox(isolate=False) as sandbox, closing(Session(sandbox, {}, 0)) as session:
        session.execute("a", "def f(): return 1")
        f = session.lookup(["f"])["f"]
        for name in ("__code__", "__globals__", "cpu", "secret"):
            with pytest.raises(AttributeError):
                getattr(f, name)


@pytest.mark.skipif(Path(sys.prefix) != COURSE / ".venv", reason="an environment that make has not set up")
def test_where_the_course_lies_cannot_be_learned(session: Session) -> None:
    """Compiled files contain the path of their source, and an editable package the path of the course."""
    looks = f"""
import os
def mentions(path):
    try:
        return {str(COURSE)!r}.encode() in open(path, 'rb').read()
    except OSError:
        return False
files = [os.path.join(d, f) for d, _, fs in os.walk('/sandbox/site-packages') for f in fs if f.endswith(('.pyc', '.py', '.json', '.pth'))]
some = [f for n, f in enumerate(sorted(files)) if n % 10 == 0 or 'torch/nn/functional' in f or f.count('/') < 5 or 'info' in f]
print(len(files) > 1000, [path for path in some if mentions(path)])
"""
    assert printed(session, looks) == "True []\n"


def test_functions_of_this_side_stand_in_for_the_students_own(session: Session) -> None:
    session.execute("a", "def double(x):\n    return x\n")
    session.execute("b", "def quadruple(x):\n    return double(double(x))\n")

    def double(x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 3:
            raise ValueError("not three")
        return 2 * x

    quadruple, x = session.lookup(["quadruple"])["quadruple"], torch.arange(2.0, requires_grad=True)
    assert torch.equal(quadruple(x), x)
    with session.replacing({"double": double}):
        out = quadruple(x)
        assert torch.equal(out, 4 * x)
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.full((2,), 4.0))
        with pytest.raises(StudentError, match="not three") as raised:
            quadruple(torch.zeros(3))
        assert raised.value.type_names[0] == "ValueError"
    assert torch.equal(quadruple(x), x)


def test_a_class_of_this_side_stands_in_with_parameters_there_and_gradients(session: Session) -> None:
    session.execute("a", "import torch\nclass Inner:\n    pass\n")
    session.execute(
        "b",
        """class Outer(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = Inner(n, n, bias=False)
    def forward(self, x):
        return 2 * self.inner(x)
""",
    )
    with session.replacing({"Inner": as_function(torch.nn.Linear)}, modules={"Inner"}):
        module = session.lookup(["Outer"])["Outer"](3)
        weight = torch.arange(9.0).reshape(3, 3)
        module.load_state_dict({"inner.weight": weight})
        x = torch.ones(1, 3, requires_grad=True)
        out = module(x)
        assert torch.equal(out, 2 * x @ weight.T) and list(module.state_dict()) == ["inner.weight"]
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], 2 * weight.sum(0, keepdim=True))
    many = torch.empty(10_000, 1)
    with pytest.raises(ValueError, match="larger than any"):
        as_function(torch.nn.Bilinear)([1, 1, 1], {}, {}, (many, many))
    with pytest.raises(StudentError):
        session.lookup(["Outer"])["Outer"](3)


def test_a_new_fork_has_the_functions_that_stand_in_as_long_as_they_do(hurried: Session) -> None:
    hurried.execute(
        "a", "import os\ndef double(x):\n    return x\ndef both(x):\n    return double(x) if x < 9 else os._exit(1)\n"
    )
    both = hurried.lookup(["both"])["both"]
    with hurried.replacing({"double": lambda x: 2 * x}):
        with pytest.raises(StudentError):
            both(9)
        assert both(3) == 6
    assert both(3) == 3


IN_PLACE = """
import gc, sys, torch
torch.equal = lambda *a: True
for module in list(sys.modules.values()):
    if hasattr(module, 'tensors_in') and hasattr(module, 'same'):
        module.same = lambda *a: True
kept = []
def spoil(x):
    kept.append(x)
    with torch.no_grad():
        x.zero_()
    return x + 1
def keep(x):
    kept.append(x)
    return x + 1
def first():
    return kept[0]
"""


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.ones(3, requires_grad=True),
        torch.tensor([True, False]),
        torch.tensor(2.0, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([1 + 1j]),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_a_change_in_place_is_seen_whatever_the_student_s_process_says(session: Session, tensor: torch.Tensor) -> None:
    session.execute("a", IN_PLACE)
    spoil, keep = session.lookup(["spoil", "keep"]).values()
    before = tensor.detach().clone()
    with watching(tensor):
        assert torch.equal(keep(tensor).detach(), before + 1) and torch.equal(tensor.detach(), before)
        spoil(tensor)
    assert torch.equal(tensor.detach(), torch.zeros_like(before))


def test_what_a_student_keeps_of_a_lent_tensor_stays_as_it_was(session: Session) -> None:
    session.execute("a", IN_PLACE)
    keep, first = session.lookup(["keep", "first"]).values()
    tensors = [torch.full((3,), float(n)) for n in range(4)]
    with watching(*tensors):
        for tensor in tensors:
            keep(tensor)
    assert torch.equal(first(), torch.zeros(3))


def test_where_nothing_more_can_be_lent_the_process_reports(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.grading.sandbox.lent.SIZE", 0)
    session.execute("a", "def spoil(x):\n    return x.zero_()")
    spoil, tensor = session.lookup(["spoil"])["spoil"], torch.ones(3)
    with watching(tensor):
        spoil(tensor)
    assert torch.equal(tensor, torch.zeros(3))
