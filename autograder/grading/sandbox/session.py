"""The trusted end of one submission: runs cells in the sandbox and stands in for the student's objects.

A proxy looks to a check like the student's function, class or module: it can be called with tensors, differentiated
through, and asked for a state_dict. What comes back is decoded data. If the student's code hangs or dies, that call
fails, the sandbox is started again, and the earlier cells are run again without the one that did it.
"""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from autograder.checks.framework import StudentError, watched
from autograder.grading.sandbox.sandbox import Job, Limits, Sandbox, SandboxError
from autograder.grading.sandbox.worker.wire import Decoder, Encoder, PeerGone, PeerSlow, Reference, WireError
from autograder.grading.sandbox.process_tree import Usage

METHODS = frozenset({"state_dict", "load_state_dict", "parameters", "named_parameters", "to", "train", "eval"})
PNG = b"\x89PNG\r\n\x1a\n"
MAX_CALLBACKS = 1000
BY_ANY_PROCESS = ("MemoryError", "RuntimeError", "ProtocolError", "ProcessEnded")  # what a process left behind can do
STARVED = 15  # the last backstop: how many times as long a submission may take on a machine too busy to run it
MAX_OUTPUTS, MAX_TEXT, MAX_IMAGE = 60, 50_000, 2 * 2**20  # of one cell


class Overuse(Exception):
    """A submission uses more than it may."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Allowance:
    """What is left of a whole submission's CPU seconds, waiting seconds and room for output."""

    cpu: float
    idle: float
    text: int
    images: int

    @classmethod
    def of(cls, limits: Limits) -> "Allowance":
        return cls(limits.total_cpu, limits.total_idle, limits.text, limits.images)

    def spent(self) -> str:
        """What has run out, or nothing."""
        if self.cpu <= 0:
            return "this notebook has used all the CPU time of a submission"
        return "this notebook has waited as long as a submission may" if self.idle <= 0 else ""


class Watchman:
    """Looks at a submission's processes during one request."""

    def __init__(self, job: Job, cpu_seconds: float, limits: Limits, allowance: Allowance) -> None:
        self.job, self.cpu_seconds, self.limits, self.allowance = job, cpu_seconds, limits, allowance
        self.idle, self.callbacks, self.callback_cpu, self.last = 0.0, 0, 0.0, time.monotonic()
        self.more_processes = 0  # now than at the start
        if job.tree is not None:
            used = job.tree.look()
            self._charge(used)  # what it has used since the last request is not this request's
            self._processes = used.processes
        self.start = job.charged

    def look(self) -> None:
        """Called every quarter of a second while the answer is awaited. Time is charged as CPU time, or as idle time
        when nothing of the submission wants the CPU; a machine that is too busy to run it charges nothing."""
        if self.job.tree is None:
            return
        used, now = self.job.tree.look(), time.monotonic()
        idle = 0.0 if used.runnable else now - self.last
        self.idle, self.last = self.idle + idle, now
        self.allowance.idle -= idle
        self.more_processes = used.processes - self._processes
        self._charge(used)
        self._judge(used)

    def _charge(self, used: Usage) -> None:
        self.allowance.cpu -= max(0.0, used.cpu - self.job.charged)
        self.job.charged = max(used.cpu, self.job.charged)

    def _judge(self, used: Usage) -> None:
        limits, cpu = self.limits, self.cpu_seconds
        if used.memory > limits.memory:
            raise Overuse("MemoryError", f"it used more than {limits.memory / 2**30:.1f} GB of memory")
        if used.gpu_memory > limits.gpu_memory:
            raise Overuse("MemoryError", f"it used more than {limits.gpu_memory / 2**30:.1f} GB of GPU memory")
        if used.processes > limits.processes:
            raise Overuse("RuntimeError", f"it had more than {limits.processes} processes")
        if used.started > limits.started:
            raise Overuse("RuntimeError", f"it started more than {limits.started} processes and threads")
        if used.cpu - self.start > cpu:
            raise Overuse("TimeoutError", f"it used more than {cpu:g} seconds of CPU time")
        if self.idle > cpu * limits.patience:
            raise Overuse("TimeoutError", f"it waited for more than {cpu * limits.patience:g} seconds")
        if spent := self.allowance.spent():
            raise Overuse("TimeoutError", spent)

    def count_callback(self) -> None:
        self.callbacks += 1
        if self.callbacks > MAX_CALLBACKS:
            raise Overuse("RuntimeError", f"it called the function it was given more than {MAX_CALLBACKS} times")

    def charge_callback(self, cpu: float) -> None:
        """What the given function costs is the submission's time: it has chosen how often, and with what."""
        self.last = time.monotonic()  # it has not been idle
        self.callback_cpu += cpu
        self.allowance.cpu -= cpu
        if self.callback_cpu > self.cpu_seconds:
            raise Overuse("TimeoutError", f"the function it was given ran for more than {self.cpu_seconds:g} seconds")


@dataclass
class CellRun:
    """What running one of the student's cells gave: nbformat outputs, and the error if there was one."""

    outputs: list[dict] = field(default_factory=list)
    error: StudentError | None = None


class Session:
    """One submission in the sandbox."""

    def __init__(self, sandbox: Sandbox, files: dict[str, str], seed: int) -> None:
        self.sandbox, self.files, self.seed = sandbox, files, seed
        self.limits = sandbox.limits
        self.generation = 0
        self._history: list[tuple[str, str]] = []
        self._leavers: set[tuple[str, str]] = set()  # cells that ended and left processes running
        self._callbacks: list[Callable] = []
        self._serial = 0
        self._allowance = Allowance.of(self.limits)
        self._restarts = 0
        self._job: Job | None = sandbox.open(files, seed)

    def give_up(self) -> None:
        """Whatever is still asked of this submission fails at once."""
        self._allowance.cpu = 0.0
        if self._job is not None:
            self._abandon()

    def close(self) -> bool:
        """Returns whether the kernel had killed the submission, short of memory."""
        job, self._job = self._job, None
        return job is not None and job.end()

    def execute(self, cell: str, source: str) -> CellRun:
        """Run a cell. A cell that hangs or dies is left out when the sandbox is started again."""
        try:
            header, payload = self._without_leavers(lambda: self._execute(cell, source))
        except StudentError as error:
            return CellRun(error=error)
        self._history.append((cell, source))
        try:
            return CellRun(_outputs(header.get("outputs"), payload, self._allowance), _error(header.get("error")))
        except WireError as error:
            return CellRun(error=_garbage(error))

    def lookup(self, names: list[str]) -> dict[str, Any]:
        """The student's values of these names: plain data by value, everything else as proxies."""
        try:
            header, payload = self._request({"op": "lookup", "names": names}, self.limits.call_cpu)
            found = header.get("found")
            if not isinstance(found, dict):
                raise WireError("malformed reply")
            return {name: self._decoder(payload, name).decode(found[name]) for name in names if name in found}
        except WireError as error:
            raise _garbage(error) from error

    def call(self, reference: "RemoteObject", method: str | None, args: tuple, kwargs: dict) -> tuple[Any, list, int]:
        """Returns the value, the arguments the call changed, and the number by which to differentiate it."""
        def ask() -> tuple[dict, bytes]:
            encoder = Encoder(self._refer)
            request = {"op": "call", "target": self._target(reference), "method": method,
                       "args": encoder.encode(args), "kwargs": encoder.encode(kwargs)}
            try:
                return self._request(request, self.limits.call_cpu, bytes(encoder.payload))
            finally:
                self._callbacks.clear()

        header, payload = self._without_leavers(ask)
        if header.get("error") is not None:
            raise _error(header["error"])
        try:
            decoder = self._decoder(payload)
            value = decoder.decode(header.get("value"))
            changed = [(int(index), decoder.decode(tensor)) for index, tensor in header.get("changed") or []]
            return value, changed, int(header.get("call") or 0)
        except (WireError, TypeError, ValueError) as error:
            raise _garbage(error) from error

    def backward(self, call: int, cotangents: list) -> list:
        encoder = Encoder()
        request = {"op": "backward", "call": call, "cotangents": encoder.encode(cotangents)}
        header, payload = self._request(request, self.limits.call_cpu, bytes(encoder.payload))
        if header.get("error") is not None:
            raise _error(header["error"])
        try:
            gradients = self._decoder(payload).decode(header.get("value"))
        except WireError as error:
            raise _garbage(error) from error
        return gradients if isinstance(gradients, list) else []

    # ---- the conversation

    def _execute(self, cell: str, source: str) -> tuple[dict, bytes]:
        return self._request({"op": "execute", "cell": cell, "source": source}, self.limits.cell_cpu)

    def _request(self, header: dict, cpu_seconds: float, payload: bytes = b"") -> tuple[dict, bytes]:
        """Ask and wait. CPU seconds and memory of the submission's processes are watched; what goes wrong is the
        student's error, and ends this fork."""
        self._ensure_running()
        self._serial += 1
        connection, watchman = self._job.connection, Watchman(self._job, cpu_seconds, self.limits, self._allowance)
        wall_seconds = cpu_seconds * self.limits.patience * (STARVED if self._job.tree else 1)
        deadline = time.monotonic() + wall_seconds  # for all frames together
        try:
            connection.sock.settimeout(wall_seconds)
            connection.send(header | {"serial": self._serial}, payload)
            while True:
                reply, reply_payload = connection.receive(max(0.0, deadline - time.monotonic()), watchman.look)
                if "callback" not in reply:
                    break
                watchman.count_callback()
                start = time.process_time()
                self._serve_callback(reply, reply_payload)
                watchman.charge_callback(time.process_time() - start)
            if reply.get("serial") != self._serial:
                raise WireError("reply to another request")
            if header["op"] == "execute":
                watchman.look()  # what a cell leaves running is that cell's
                if watchman.more_processes > 0:
                    self._leavers.add((header["cell"], header["source"]))
            return reply, reply_payload
        except Overuse as error:
            self._abandon()
            raise StudentError((error.kind,), str(error)) from None
        except PeerSlow:
            self._abandon()
            raise StudentError(("TimeoutError",), f"it did not finish within {wall_seconds:g} seconds") from None
        except PeerGone:
            self._abandon()
            raise StudentError(("ProcessEnded",), "it ended the Python process (exit, crash, memory or CPU limit)") from None
        except WireError as error:
            self._abandon()
            raise _garbage(error) from error

    def _serve_callback(self, request: dict, payload: bytes) -> None:
        encoder, decoder = Encoder(self._refer), self._decoder(payload)
        try:
            function = self._callbacks[request["callback"]]
            args, kwargs = decoder.decode(request["args"]), decoder.decode(request["kwargs"])
            reply = {"value": encoder.encode(function(*args, **kwargs))}
        except WireError:
            raise
        except Exception as error:
            reply = {"raise": f"{type(error).__name__}: {error}"[:500]}
        self._job.connection.send(reply, bytes(encoder.payload))

    def _without_leavers(self, ask: Callable[[], tuple[dict, bytes]]) -> tuple[dict, bytes]:
        """Ask. If that ends badly while processes of earlier cells may still run, ask again without these cells."""
        history = self._history
        try:
            return ask()
        except StudentError as error:
            if not self._forget_leavers(error):
                raise
        try:
            return ask()
        except StudentError:  # it was not them
            self._history = history
            if self._job is not None:
                self._abandon()
            raise

    def _forget_leavers(self, error: StudentError) -> bool:
        """Leave out the cells whose processes may have done what ``error`` says. Returns whether there were any."""
        kept = [entry for entry in self._history if entry not in self._leavers]
        if error.type_names[0] not in BY_ANY_PROCESS or len(kept) == len(self._history):
            return False
        self._history = kept
        return True

    def _abandon(self) -> None:
        self._restarts += 1
        if self.close():
            raise SandboxError("the machine ran out of memory; free some, or grade fewer at the same time (WORKERS=1)")

    def _ensure_running(self) -> None:
        """After a crash or time-out: a new fork, the earlier cells again, without any that fails on the way."""
        while self._job is None:
            if self._restarts > self.limits.restarts:
                raise StudentError(("ProcessEnded",), "not run: this notebook crashed or timed out too often before")
            if spent := self._allowance.spent():
                raise StudentError(("TimeoutError",), f"not run: {spent}")
            self.generation += 1
            self._job = self.sandbox.open(self.files, self.seed)
            for cell, source in list(self._history):
                try:
                    self._execute(cell, source)
                except StudentError as error:
                    if not self._forget_leavers(error):
                        self._history.remove((cell, source))
                    break

    # ---- values

    def _decoder(self, payload: bytes, name: str | None = None) -> Decoder:
        return Decoder(payload, lambda reference: RemoteObject(self, reference, name), device=self.sandbox.device)

    def _refer(self, value: Any) -> dict | None:
        if isinstance(value, RemoteObject):
            return {"r": {"id": self._target(value), "type": "object", "callable": True}}
        if callable(value):
            self._callbacks.append(value)
            return {"c": len(self._callbacks) - 1}
        return None

    def _target(self, proxy: "RemoteObject") -> int:
        if proxy._generation != self.generation or self._job is None:
            self._ensure_running()
            fresh = self.lookup([proxy._name]).get(proxy._name) if proxy._name else None
            if not isinstance(fresh, RemoteObject):
                raise StudentError(("ProcessEnded",), "an earlier call ended the Python process, and this object with it")
            proxy._reference, proxy._generation = fresh._reference, self.generation
        return proxy._reference.id


class RemoteObject:
    """A student's function, class or module, seen from the trusted side."""

    def __init__(self, session: Session, reference: Reference, name: str | None) -> None:
        self._session, self._reference, self._name = session, reference, name
        self._generation = session.generation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self, None, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **kwargs: _call(self, name, args, kwargs)
        raise AttributeError(f"a check may not use .{name} of a student's object")

    def __repr__(self) -> str:
        return f"<student's {self._reference.type_name}>"


class _Differentiable(torch.autograd.Function):
    """A call into the sandbox as a node of the autograd graph; the student's own graph stays there."""

    @staticmethod
    def forward(ctx: Any, state: dict, *inputs: torch.Tensor) -> tuple:
        outputs = state["run"]()
        ctx.state, ctx.count = state, len(inputs)
        flat = [tensor.detach() for tensor in outputs]
        ctx.mark_non_differentiable(*[f for f, o in zip(flat, outputs) if not o.requires_grad])
        return tuple(flat)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple:
        session, call = ctx.state["session"], ctx.state["call"]
        gradients = session.backward(call, list(cotangents))
        gradients = [g if isinstance(g, torch.Tensor) else None for g in gradients][:ctx.count]
        return None, *gradients, *[None] * (ctx.count - len(gradients))


def _call(proxy: RemoteObject, method: str | None, args: tuple, kwargs: dict) -> Any:
    session = proxy._session
    inputs = _tensors((args, kwargs))
    state: dict = {"session": session}

    def run() -> list[torch.Tensor]:
        state["value"], changed, state["call"] = session.call(proxy, method, args, kwargs)
        for index, tensor in changed:  # what an in-place change would have done here
            if 0 <= index < len(inputs) and _is_watched(inputs[index]) and _has_shape(tensor, inputs[index]):
                inputs[index].data.copy_(tensor)
        return _tensors(state["value"])

    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        run()
        return _map_tensors(state["value"], lambda tensor: tensor)
    state["run"] = run
    outputs = iter(_Differentiable.apply(state, *inputs))
    return _map_tensors(state["value"], lambda tensor: next(outputs))


def _is_watched(tensor: torch.Tensor) -> bool:
    return any(tensor is one for one in watched.get())


def _has_shape(value: Any, like: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == like.shape


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _map_tensors(value, lambda tensor: found.append(tensor) or tensor)
    return found


def _map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(item, change) for item in value)
    return value


def _garbage(error: Exception) -> StudentError:
    return StudentError(("ProtocolError",), f"its answer could not be read ({error})")


def _error(data: Any) -> StudentError | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("types"), list):
        return _garbage(WireError("malformed error"))
    names = tuple(str(name)[:80] for name in data["types"][:20]) or ("Exception",)
    line = data.get("line")
    return StudentError(names, str(data.get("message"))[:2000], f"line {line}" if type(line) is int else "")


def _outputs(items: Any, payload: bytes, allowance: Allowance) -> list[dict]:
    """The worker's outputs as nbformat ones: text and PNG, nothing else, and not more than a person would read."""
    outputs, room = [], min(MAX_TEXT, allowance.text)
    for item in items[:MAX_OUTPUTS] if isinstance(items, list) else []:
        if not isinstance(item, dict):
            raise WireError("malformed output")
        if item.get("stream") in ("stdout", "stderr"):
            text = str(item.get("text"))[:room]
            outputs.append({"output_type": "stream", "name": item["stream"], "text": text})
        elif isinstance(item.get("show"), dict) and (data := _data(item["show"], payload, room, allowance)):
            text = data.get("text/plain", "")
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        else:
            continue
        room -= len(text)
        allowance.text -= len(text)
    return outputs


def _data(show: dict, payload: bytes, room: int, allowance: Allowance) -> dict:
    data = {}
    if isinstance(show.get("text"), str):
        data["text/plain"] = show["text"][:room]
    place = show.get("png")
    if isinstance(place, list) and len(place) == 2 and all(type(n) is int and n >= 0 for n in place):
        image = payload[place[0]:place[0] + place[1]]
        if image.startswith(PNG) and len(image) <= min(MAX_IMAGE, allowance.images):
            allowance.images -= len(image)
            data["image/png"] = base64.b64encode(image).decode()
    return data


__all__ = ["CellRun", "RemoteObject", "SandboxError", "Session"]
