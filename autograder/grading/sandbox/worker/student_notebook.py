"""One student's notebook, in a fork of its own: runs its cells and answers the trusted side's requests.

The trusted side trusts nothing from here: student code can take over this process at any time, but all it can do then
is answer wrongly or not at all.
"""

import bdb
import builtins
import contextlib
import itertools
import linecache
import math
import os
import random
import signal
import sys
import traceback
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from helper_modules import offer_helpers
from isolation import make_dumpable
from pullback import pullback, slope
from student_shell import Recorder, Stream
from tensors import make_module, overwrite, same, tensors_in, usual_numbers
from wire import Connection, Decoder, Encoder, PeerGone

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
DEBUGGER = "it stops in a debugger, and nobody is there to let it go on: remove breakpoint() or set_trace()"


def default_device() -> str:
    """The type of device on which tensors are made; empty if it does not work here."""
    try:
        return torch.get_default_device().type
    except Exception:  # CUDA, which a CPU build of torch does not have
        return ""


class Notebook:
    """Answers the trusted side's requests about one student's notebook."""

    def __init__(self, connection: Connection, shell: Any, device: str, lent: Any) -> None:
        self.connection, self.shell, self.device, self.lent = connection, shell, device, lent
        self.objects: dict[int, Any] = {}
        self.ids: dict[int, int] = {}
        self.made: dict[int, Any] = {}  # objects that calls have returned, by the serial of the call
        self.graphs: dict[int, tuple[Any, ...]] = {}
        self.counter = itertools.count(1)
        self.own: dict[str, Any] = {}  # the student's values of the replaced names
        self.replaced: set[str] = set()  # the replaced names
        self.aside: list[str] = []  # names of functions that are to raise
        self.refusals: dict[str, tuple[Any, Any]] = {}  # by name: the student's own, and its stand-in that raises
        self.waiting: deque[tuple[dict[str, Any], bytes]] = deque()  # requests that came before a callback's answer
        # The grad mode that the last cell left, for the next cell. Tests begin with gradients on, whatever a cell did.
        self.records_gradients = True
        self.recorder = Recorder()
        self.pid = os.getpid()

    def serve(self) -> None:
        operations = {
            "execute": self.execute,
            "lookup": self.lookup,
            "call": self.call,
            "backward": self.backward,
            "replace": self.replace,
            "set_aside": self.set_aside,
        }
        while True:
            header, payload = self.waiting.popleft() if self.waiting else self.connection.receive()
            self.record()
            encoder = Encoder(self.refer)
            try:
                try:
                    reply = operations[header["op"]](header, self.decoder(payload), encoder)
                finally:
                    stop_timers()
            except BaseException as error:  # student code raises anything, SystemExit and KeyboardInterrupt included
                if isinstance(error, PeerGone):
                    raise
                encoder = Encoder(self.refer)
                reply = {"error": describe(error)}
            self.connection.send({"serial": header.get("serial")} | reply, bytes(encoder.payload))

    def record(self) -> None:
        self.recorder = Recorder()
        sys.stdout, sys.stderr = Stream("stdout", self.recorder), Stream("stderr", self.recorder)
        self.shell.display_pub.recorder = self.recorder
        self.shell.displayhook.recorder = self.recorder

    def execute(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        torch.set_grad_enabled(self.records_gradients)
        self.shell.is_plain = header["plain"]
        result = self.shell.run_cell(header["source"], store_history=False, cell_id=header.get("cell"))
        self.records_gradients = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        if default_device() not in ("cpu", self.device):  # set for the GPU of another machine
            torch.set_default_device(None)
        if os.getpid() != self.pid:  # a child that the student's code forked has come to the end of its cell
            os._exit(0)
        self.refuse()
        error = result.error_before_exec or result.error_in_exec
        outputs = []
        for output in self.recorder.outputs:
            if "png" in output.get("show", {}):
                offset = len(encoder.payload)
                encoder.payload += output["show"]["png"]
                output["show"]["png"] = [offset, len(output["show"]["png"])]
            outputs.append(output)
        found = self.lookup(header, decoder, encoder) if header["names"] else {}
        return {"outputs": outputs, "error": describe(error) if error is not None else None} | found

    def lookup(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        names = self.shell.user_ns
        return {"found": {name: encoder.encode(names[name]) for name in header["names"] if name in names}}

    def replace(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        """Restore the student's values of all replaced names, then put the check's functions under the new names."""
        names = self.shell.user_ns
        for name, value in self.own.items():
            names[name] = value
        values = {name: decoder.decode(value) for name, value in header["values"].items()}
        values |= {name: module_class(name, values[name]) for name in header["modules"]}
        self.own = {name: names[name] for name in values if name in names}
        self.replaced = set(values)
        names.update(values)
        self.refuse()
        return {}

    def set_aside(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        """Make these functions raise, as they have hung or ended the process; those set aside before work again."""
        self.aside = header["names"]
        self.refuse()
        return {}

    def refuse(self) -> None:
        """Make what is set aside raise, even if a cell has defined it anew, and restore the student's own otherwise."""
        names = self.shell.user_ns
        for name, (own, refusal) in self.refusals.items():
            if name not in self.aside and names.get(name) is refusal:
                names[name] = own
        for name in self.aside:
            _, refusal = self.refusals.get(name, (None, None))
            if name in names and name not in self.replaced and names[name] is not refusal:
                self.refusals[name] = names[name], refusing(name, names[name])
                names[name] = self.refusals[name][1]

    def call(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        target = self.made[header["made"]] if "made" in header else self.objects[header["target"]]
        args, kwargs = decoder.decode(header["args"]), decoder.decode(header["kwargs"])
        if "make" in header:
            module, unloaded = make_module(target, args, kwargs, decoder.decode(header["make"]))
            self.made[header["serial"]] = module
            return {"unloaded": unloaded} if unloaded else {"value": encoder.encode(module)}
        if header.get("method"):
            target = getattr(target, header["method"])
        inputs = tensors_in((args, kwargs))
        before = [tensor.detach().clone() for tensor in inputs] if header.get("watched") else []
        with usual_numbers():
            if header.get("again"):
                overwrite(target(*args, **kwargs))
            value = target(*args, **kwargs)
            if header.get("method") and isinstance(value, types.GeneratorType):  # as parameters() gives
                value = list(itertools.islice(value, 10_000))
        changed = [
            [index, encoder.encode(tensor.detach())]
            for index, (tensor, old) in enumerate(zip(inputs, before, strict=False))
            if tensor.shape != old.shape or not same(tensor.detach(), old)
        ]
        number = next(self.counter)
        if any(tensor.requires_grad for tensor in inputs):
            self.graphs[number] = (inputs, tensors_in(value))
        sloped = None
        if at := header.get("slope"):
            argument, place = at
            sloped = slope(value, place, args[argument])
        if callable(value):
            self.made[header["serial"]] = value
        reply: dict[str, Any] = {"call": number, "changed": changed, "value": encoder.encode(value)}
        if header.get("watched"):
            reply["plain"] = [encoder.encode(given) for given in args if type(given) in (list, dict)]
        reply["slope"] = encoder.encode(sloped)
        return reply

    def backward(self, header: dict[str, Any], decoder: Decoder, encoder: Encoder) -> dict[str, Any]:
        inputs, outputs = self.graphs[header["call"]]
        cotangents = decoder.decode(header["cotangents"])
        pairs = [
            (o, c.to(o.device, o.dtype))
            for o, c in zip(outputs, cotangents, strict=False)
            if c is not None and o.requires_grad
        ]
        module = self.objects[header["of"]] if header.get("of") else None
        if module is not None:
            wanted = [parameter for parameter in module.parameters() if parameter.requires_grad]
        else:
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
        found = (
            pullback([o for o, _ in pairs], wanted, [c for _, c in pairs], retain_graph=True, allow_unused=True)
            if pairs and wanted
            else [None] * len(wanted)
        )
        if module is not None:
            return {"value": encoder.encode(list(found))}
        gradients = iter(found)
        return {"value": encoder.encode([next(gradients) if t.requires_grad else None for t in inputs])}

    # ---- values across the wire

    def refer(self, value: Any) -> dict[str, Any] | None:
        if not callable(value) or isinstance(value, np.generic):
            return None
        number = self.ids.get(id(value))
        if number is None:
            number = next(self.counter)
            self.ids[id(value)], self.objects[number] = number, value
        return {"r": number}

    def decoder(self, payload: bytes) -> Decoder:
        return Decoder(payload, self.objects.__getitem__, self.callback, self.device, self.lent)

    def callback(self, number: int) -> Any:
        """Return a function of the check's as the student's code sees it."""

        def check_function(*args: Any, **kwargs: Any) -> Any:
            inputs = (
                [tensor for tensor in tensors_in((args, kwargs)) if tensor.requires_grad]
                if torch.is_grad_enabled()
                else []
            )
            node: Any = _Asked
            return node.apply(self, number, args, kwargs, *inputs) if inputs else self.ask(number, args, kwargs)

        return check_function

    def ask(self, number: int, args: Any, kwargs: Any, cotangents: list[Any] | None = None) -> Any:
        """Return what the check's function returns or, with ``cotangents``, its gradients."""
        encoder = Encoder(self.refer)
        header = {"callback": number, "args": encoder.encode(list(args)), "kwargs": encoder.encode(kwargs)}
        if cotangents is not None:
            header["cotangents"] = encoder.encode(cotangents)
        self.connection.send(header, bytes(encoder.payload))
        reply, payload = self.connection.receive()
        while "op" in reply:  # a request that was sent ahead
            self.waiting.append((reply, payload))
            reply, payload = self.connection.receive()
        if "raise" in reply:
            kind = getattr(builtins, str(reply.get("type")), None)
            raise (kind if kind in (ValueError, TypeError, IndexError, NotImplementedError) else RuntimeError)(
                reply["raise"]
            )
        return self.decoder(payload).decode(reply["value"])


class _Asked(torch.autograd.Function):
    """A call of the check's function as a node of the student's graph."""

    @staticmethod
    def forward(ctx: Any, notebook: Notebook, number: int, args: Any, kwargs: Any, *inputs: torch.Tensor) -> Any:
        ctx.notebook, ctx.number, ctx.args, ctx.kwargs = notebook, number, args, kwargs
        value = notebook.ask(number, args, kwargs)
        if isinstance(value, (tuple, list)):
            return tuple(item.detach() if isinstance(item, torch.Tensor) else item for item in value)
        return value.detach() if isinstance(value, torch.Tensor) else value

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return None, None, None, None, *ctx.notebook.ask(ctx.number, ctx.args, ctx.kwargs, list(cotangents))


def module_class(name: str, ask: Callable[..., Any]) -> type[torch.nn.Module]:
    """Return a class of modules that hold their parameters, and ask the check's function for shapes and outputs."""

    def make(self: Any, *arguments: Any, **options: Any) -> None:
        torch.nn.Module.__init__(self)
        made_with: Any = list(arguments), options
        self.made_with = made_with
        for path, shape in ask(*made_with).items():
            *parts, last = path.split(".")
            owner = self
            for part in parts:
                if part not in dict(owner.named_children()):
                    owner.add_module(part, torch.nn.Module())
                owner = owner.get_submodule(part)
            bound = 1 / math.sqrt(max(1, shape[-1] if shape else 1))  # initial weights as in nn.Linear
            owner.register_parameter(last, torch.nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self: Any, *inputs: Any, **named: Any) -> Any:
        return ask(*self.made_with, dict(self.named_parameters()), inputs, named)

    return type(name, (torch.nn.Module,), {"__init__": make, "forward": forward})


def refusing(name: str, own: Any) -> Any:
    """Return a function or class that raises when it is called in place of the student's own."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} hung or crashed before, so it is not called again")

    return type(name, (torch.nn.Module,), {"__init__": refuse}) if isinstance(own, type) else refuse


def stop_timers() -> None:
    """Stop the alarms that student code has set: they would go off during a later answer."""
    is_stopped = False
    while not is_stopped:
        with contextlib.suppress(BaseException):  # its handler may raise here, too
            for timer in TIMERS:
                signal.setitimer(timer, 0)
            is_stopped = True


def describe(error: BaseException) -> dict[str, Any]:
    """Return an exception as plain text: class names along the MRO, message, line in the student's own cell, and
    whether it comes from the stub's own ``raise``."""
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        message = DEBUGGER if isinstance(error, bdb.BdbQuit) else said[:2000]
    except BaseException:
        message = "(the message could not be read)"
    line, stub = error.lineno if isinstance(error, SyntaxError) else None, False
    for frame, number in traceback.walk_tb(error.__traceback__):
        stub = False  # a library that the cell calls raises NotImplementedError, too
        file = frame.f_code.co_filename
        if "ipykernel" in file or "ipython-input" in file or file.startswith("<"):
            line, stub = (
                number,
                linecache.getline(file, number).partition("#")[0].strip() == "raise NotImplementedError",
            )
    return {
        "types": [c.__name__[:80] for c in type(error).__mro__][:20],
        "message": message,
        "line": line,
        "stub": stub,
    }


def run_notebook(connection: Connection, shell: Any, job: dict[str, Any], lent: Any) -> None:
    make_dumpable(True)
    os.makedirs(job["directory"], exist_ok=True)
    os.chdir(job["directory"])
    header, _ = connection.receive()
    for name, text in header["files"].items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
    offer_helpers(header["files"], job["directory"])
    sys.path.insert(0, job["directory"])
    random.seed(job["seed"])
    np.random.seed(job["seed"])  # noqa: NPY002  the generator that students' code uses
    if job["device"] != "cuda":  # torch.manual_seed would take 3 ms to record its caller for a later GPU
        torch.cuda.manual_seed_all = torch.xpu.manual_seed_all = torch.mtia.manual_seed_all = lambda seed: None
    torch.manual_seed(job["seed"])
    notebook = Notebook(connection, shell, job["device"], lent)
    connection.send({"hello": job["token"]})
    notebook.serve()
