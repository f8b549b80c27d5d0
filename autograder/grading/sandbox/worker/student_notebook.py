"""One student's notebook, in a fork of its own: runs its cells and answers the trusted side's requests.

Nothing here is trusted by the other side: student code can take this file over at any time, and then it may only answer
wrongly or not at all.
"""

import bdb
import builtins
import contextlib
import itertools
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
from tensors import call_before, make_module, same, tensors_in, usual_numbers
from wire import Connection, Decoder, Encoder, PeerGone, Reference

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
DEBUGGER = "it stops in a debugger, and nobody is there to let it go on: remove breakpoint() or set_trace()"


class Notebook:
    """Answers the trusted side's requests about one student's notebook."""

    def __init__(self, connection: Connection, shell: Any, device: str, lent: Any) -> None:
        self.connection, self.shell, self.device, self.lent = connection, shell, device, lent
        self.objects: dict[int, Any] = {}
        self.ids: dict[int, int] = {}
        self.made: dict[int, Any] = {}  # objects that calls have returned, by the number of the call
        self.graphs: dict[int, tuple[Any, ...]] = {}
        self.counter = itertools.count(1)
        self.own: dict[str, Any] = {}  # what stood under the names that are replaced
        self.replaced: set[str] = set()  # these names
        self.aside: list[str] = []  # names of functions that are to raise
        self.refusals: dict[str, tuple[Any, Any]] = {}  # by name: the student's own, and what raises in its place
        self.waiting: deque[tuple[dict[str, Any], bytes]] = deque()  # requests that came before a function's answer
        # As the last cell left it, for the next one. Tests begin with gradients on: who has left them off pays for it once.
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
        result = self.shell.run_cell(header["source"], store_history=False, cell_id=header.get("cell"))
        self.records_gradients = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        if os.getpid() != self.pid:  # a child of the student's own that came to the end of its cell
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
        """Put the student's own back under the names replaced so far, then functions of the check's under these."""
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
        """These functions have hung or ended the process: from now on they raise, and those set aside before do not."""
        self.aside = header["names"]
        self.refuse()
        return {}

    def refuse(self) -> None:
        """See that what is set aside raises, after a cell may have defined it anew, and what is not is the student's own."""
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
            call_before(header.get("again", ""), target, args, kwargs)
            value = target(*args, **kwargs)
            if isinstance(value, (types.GeneratorType, map, filter, zip)):
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
        return {"r": {"id": number, "type": type(value).__name__[:80], "callable": True}}

    def decoder(self, payload: bytes) -> Decoder:
        return Decoder(payload, self.resolve, self.callback, self.device, self.lent)

    def resolve(self, reference: Reference) -> Any:
        return self.objects[reference.id]

    def callback(self, number: int) -> Any:
        """A function of the check's, as the student's code sees it."""

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
        """What the check's function gives, or with cotangents its gradients."""
        encoder = Encoder(self.refer)
        header = {"callback": number, "args": encoder.encode(list(args)), "kwargs": encoder.encode(kwargs)}
        if cotangents is not None:
            header["cotangents"] = encoder.encode(cotangents)
        self.connection.send(header, bytes(encoder.payload))
        reply, payload = self.connection.receive()
        while "op" in reply:  # it was sent ahead
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
    """Modules that hold their parameters, and ask the check's function what these are and what comes of them."""

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
            bound = 1 / math.sqrt(max(1, shape[-1] if shape else 1))  # as nn.Linear begins
            owner.register_parameter(last, torch.nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self: Any, *inputs: Any, **named: Any) -> Any:
        return ask(*self.made_with, dict(self.named_parameters()), inputs, named)

    return type(name, (torch.nn.Module,), {"__init__": make, "forward": forward})


def refusing(name: str, own: Any) -> Any:
    """What raises in place of a function or class."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} hung or crashed before, so it is not called again")

    return type(name, (torch.nn.Module,), {"__init__": refuse}) if isinstance(own, type) else refuse


def stop_timers() -> None:
    """An alarm that a cell has set ends with the cell: it would go off in the next answer."""
    is_stopped = False
    while not is_stopped:
        with contextlib.suppress(BaseException):  # its handler may raise here, too
            for timer in TIMERS:
                signal.setitimer(timer, 0)
            is_stopped = True


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain text: class names along the MRO, message, line in the student's own cell, and whether the stub's
    own ``raise`` is where it comes from."""
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        message = DEBUGGER if isinstance(error, bdb.BdbQuit) else said[:2000]
    except BaseException:
        message = "(the message could not be read)"
    line, stub = error.lineno if isinstance(error, SyntaxError) else None, False
    for frame in traceback.extract_tb(error.__traceback__):
        stub = False  # a library that the cell calls raises NotImplementedError, too
        if "ipykernel" in frame.filename or "ipython-input" in frame.filename or frame.filename.startswith("<"):
            line, stub = frame.lineno, (frame.line or "").partition("#")[0].strip() == "raise NotImplementedError"
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
    if job["device"] != "cuda":  # torch.manual_seed notes who asked, for the day of a GPU: a millisecond and a half
        torch.cuda.manual_seed_all = torch.xpu.manual_seed_all = lambda seed: None
    torch.manual_seed(job["seed"])
    notebook = Notebook(connection, shell, job["device"], lent)
    connection.send({"hello": job["token"]})
    notebook.serve()
