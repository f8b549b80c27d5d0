"""The trusted side of one submission: runs cells in the sandbox and makes the calls of its proxies.

Results are decoded data. If the student's code hangs or dies, that call fails, and a new fork runs the earlier cells
again, without the one that hung or died. Only its own test calls a function that has hung or died, and only a few times
more; for all other callers the function raises at once, like any function that raises an exception.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from autograder.errors import SandboxError, StudentError
from autograder.grading.sandbox.ahead import Ahead, Planned, request
from autograder.grading.sandbox.crashes import CELL, Crashes
from autograder.grading.sandbox.limits import Budget, UsageMonitor, kernel_limit
from autograder.grading.sandbox.loan import Loan
from autograder.grading.sandbox.outputs import CellRun, cell_outputs, error_in, garbage, result_text, whole_number
from autograder.grading.sandbox.proxy import RemoteObject, Returned, gradients
from autograder.grading.sandbox.sandbox import Job, Sandbox
from autograder.grading.sandbox.watch import Watch
from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.grading.sandbox.worker.wire import Decoder, Encoder, PeerGone, PeerSlow, WireError, as_json
from autograder.grading.source_names import is_plain_python
from autograder.script.context import fill
from autograder.script.question import Plan, Question

BY_ANY_PROCESS = ("MemoryError", "RuntimeError", "TimeoutError", "ProtocolError", "ProcessEnded")  # what orphans can do
CALLBACK_MARGIN = 5.0  # CPU seconds beyond a call's own; if a check's function takes more, this process is killed
NOTHING_KNOWN: tuple[frozenset[str], Any, bytes] = frozenset(), None, b""
STARVED = 15  # the last backstop: how many idle limits of wall time a machine too busy to run a submission may take


class Session:
    """One submission in the sandbox."""

    def __init__(self, sandbox: Sandbox, files: dict[str, str], seed: int) -> None:
        self.sandbox, self.files, self.seed, self.limits = sandbox, files, seed, sandbox.limits
        self.generation = 0
        self._history: list[tuple[str, str]] = []
        self._cells_with_orphans: set[tuple[str, str]] = set()  # cells that ended and left processes or threads running
        self._callbacks: list[Callable[..., Any]] = []
        self._replaced: dict[str, Callable[..., Any]] = {}  # by the name of the student's function
        self._modules: list[str] = []  # the replaced names that are module classes
        self._serial = 0
        self._budget = Budget.of(self.limits)
        self._is_over = False
        self.crashes = Crashes(self.limits)
        self._aside: list[str] = []  # functions that raise when they are called, in this fork
        self._ahead = Ahead()
        self._looked_up = NOTHING_KNOWN  # the names looked up after the last cell, the values found and their payload
        self._has_rested = False  # whether nothing was asked since a cell ended, and its processes were counted
        self._called = ""  # the function that was called last: failures of its gradients count for it
        self._job: Job | None = sandbox.open(files, seed)

    def give_up(self) -> None:
        """End the fork. All that is still asked of this submission fails at once."""
        self._is_over = True
        if self._job is not None:
            self._abandon()

    def close(self) -> bool:
        """End the fork. Returns whether the kernel had killed it because the machine was short of memory."""
        self._ahead.take_back()  # no reply will come
        job, self._job, self._aside = self._job, None, []
        return job is not None and job.end()

    def execute(self, cell: str, source: str, names: Sequence[str] = ()) -> CellRun:
        """Run a cell, and look ``names`` up after it. A new fork leaves out a cell that hung or died."""
        try:
            header, payload = self._without_orphans(lambda: self._execute(cell, source, names))
        except StudentError as error:
            return CellRun(error=error)
        self._history.append((cell, source))
        self._looked_up = frozenset(names), header.get("found"), payload
        try:
            outputs = header.get("outputs")
            shown = cell_outputs(outputs, payload, self._budget)
            return CellRun(shown, error_in(header.get("error")), result_text(outputs))
        except WireError as error:
            return CellRun(error=garbage(error))

    @contextlib.contextmanager
    def replacing(self, functions: Mapping[str, Callable[..., Any]], modules: Collection[str] = ()) -> Iterator[None]:
        """Put functions of this side into the notebook under these names for the block. A name in ``modules`` gets a
        class instead, whose modules hold their parameters there and ask the function for shapes and outputs."""
        self._replaced, self._modules = dict(functions), list(modules)
        try:
            self._request(self._replacements(), self.limits.call_cpu)
            yield
        finally:
            self._replaced, self._modules = {}, []
            if self._job is not None:  # a new fork has the student's own
                self._request(self._replacements(), self.limits.call_cpu)

    def again(self, cell: str, source: str) -> None:
        """Run a cell once more and ignore what it shows. Raises ``StudentError`` if the cell raises an exception."""
        header, _ = self._execute(cell, source)
        if error := error_in(header.get("error")):
            raise error

    def lookup(self, names: list[str]) -> dict[str, Any]:
        """The student's values of these names: plain data by value, everything else as proxies."""
        try:
            known, found, payload = self._looked_up
            if not known.issuperset(names) or self.crashes.any or self._replaced:
                self._set_aside_crashed(except_for=names)
                header, payload = self._request({"op": "lookup", "names": names}, self.limits.call_cpu)
                found = header.get("found")
            if not isinstance(found, dict):
                raise WireError("malformed reply")
            return {name: self._decoder(payload, name).decode(found[name]) for name in names if name in found}
        except WireError as error:
            raise garbage(error) from error

    def begin(self, subject: RemoteObject, script: Plan) -> None:
        """Begin a script: some of its questions may be sent before they are asked."""
        self._drop(self._ahead.plan(subject, script))

    def at(self, step: Any, goes_well: bool) -> None:
        """Go to ``step``, and drop what was sent ahead for the steps before it."""
        self._drop(self._ahead.go_to(step, goes_well))

    def call(self, target: RemoteObject, question: Question, watched: Sequence[Any] = ()) -> Returned:
        """Ask the question, unless it was sent ahead, and return the reply. ``watched`` tensors are in memory that this
        side reads afterwards. The student's process reports what this side cannot see: new shapes, tensors on a GPU,
        and changes of watched lists and dicts, which are then made here as well."""
        loan = Loan(watched)

        def ask() -> tuple[dict[str, Any], bytes]:
            self._called = target._origin
            self.crashes.require_few(self._called, bool(self._replaced))  # before a fork is opened for it
            self._set_aside_crashed(except_for=[self._called])
            planned = None if watched else self._ahead.next(target, question)
            if planned is not None:
                return self._ask_ahead(planned)
            self._drop(self._ahead.take_back())
            number = self._target(target)
            loan.begin(self._ensure_running().lent)
            encoder = Encoder(self._refer, loan.lend)
            try:
                header = request(encoder, question, bool(watched)) | {"target": number}
                reply = self._request(header, self.limits.call_cpu, bytes(encoder.payload), self._called)
            finally:
                self._callbacks.clear()
            loan.end()
            return reply

        header, payload = self._without_orphans(ask)
        if error := error_in(header.get("error")):
            if error.is_out_of_memory:  # the next call may happen to be killed or time out instead
                self.crashes.note(self._called, bool(self._replaced))
            raise error
        if unloaded := header.get("unloaded"):
            raise StudentError.unusable("KeyError", str(unloaded)[:200])
        try:
            decoder = self._decoder(payload, origin=target._origin)
            value = decoder.decode(header.get("value"))
            changed = [(whole_number(index), decoder.decode(tensor)) for index, tensor in header.get("changed") or []]
            changed += loan.changed(tensors_in((question.args, question.kwargs))) if watched else []
            plain = [given for given in question.args if type(given) in (list, dict)]
            for given, now in zip(plain, header.get("plain") or [], strict=False):
                if any(given is one for one in watched):
                    fill(given, decoder.decode(now))
            return Returned(value, changed, whole_number(header.get("call", 0)), decoder.decode(header.get("slope")))
        except (WireError, TypeError, ValueError) as malformed:
            raise garbage(malformed) from malformed

    def backward(self, call: int, cotangents: list[Any], of: int | None = None) -> list[Any]:
        """Return the gradients of an earlier call's inputs or of module ``of``'s parameters; ``[]`` if none came."""
        encoder = Encoder()
        asked = {"op": "backward", "call": call, "cotangents": encoder.encode(cotangents), "of": of}
        header, payload = self._request(asked, self.limits.call_cpu, bytes(encoder.payload), self._called)
        if error := error_in(header.get("error")):
            raise error
        try:
            slopes = self._decoder(payload).decode(header.get("value"))
        except WireError as malformed:
            raise garbage(malformed) from malformed
        return slopes if isinstance(slopes, list) else []

    # ---- the conversation

    def _replacements(self) -> dict[str, Any]:
        return {
            "op": "replace",
            "modules": self._modules,
            "values": {name: {"c": -1 - index} for index, name in enumerate(self._replaced)},
        }

    def _set_aside_crashed(self, except_for: Collection[str] = ()) -> None:
        """Make functions that have hung or died raise when they are called, but for those in ``except_for``."""
        if not self.crashes.any:
            return
        self._ensure_running()  # a new fork runs the cells again with all of them set aside
        names = sorted(self.crashes.functions.difference(except_for))
        if names != self._aside:
            self._request({"op": "set_aside", "names": names}, self.limits.call_cpu)
            self._aside = names

    def _execute(self, cell: str, source: str, names: Sequence[str] = ()) -> tuple[dict[str, Any], bytes]:
        self._set_aside_crashed()
        self._looked_up = NOTHING_KNOWN
        plain = is_plain_python(source)
        asked = {"op": "execute", "cell": cell, "source": source, "plain": plain, "names": list(names)}
        return self._request(asked, self.limits.cell_cpu, culprit=CELL + cell)

    def _ask_ahead(self, planned: Planned) -> tuple[dict[str, Any], bytes]:
        """Return the reply to a planned question. If it was not sent yet, send it with some of those that follow."""
        frames = []
        if not planned.serial:
            number = self._target(self._ahead.subject)
            room = self._ensure_running().connection.room
            frames = self._ahead.flight(planned, self._serial + 1, number, room)
            self._serial += len(frames)
        return self._reply(planned.serial, frames, self.limits.call_cpu, self._called)

    def _drop(self, serials: Sequence[int]) -> None:
        """Read and drop replies to what was sent ahead and is not asked: the student's process answers in order."""
        with contextlib.suppress(StudentError):  # the fork has ended
            for serial in serials:
                self._reply(serial, [], self.limits.call_cpu, self._called)

    def _request(
        self, header: dict[str, Any], cpu_seconds: float, payload: bytes = b"", culprit: str = ""
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the reply."""
        self.crashes.require_few(culprit, bool(self._replaced))
        self._drop(self._ahead.take_back())
        self._ensure_running()
        self._serial += 1
        frame = as_json(header | {"serial": self._serial}), payload
        cell = (header["cell"], header["source"]) if header["op"] == "execute" else None
        return self._reply(self._serial, [frame], cpu_seconds, culprit, cell)

    def _reply(
        self,
        serial: int,
        frames: list[tuple[str, bytes]],
        cpu_seconds: float,
        culprit: str = "",
        cell: tuple[str, str] | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Send the frames and return the reply numbered ``serial``, while CPU seconds and memory of the submission's
        processes are watched. Any failure ends this fork, raises ``StudentError`` and counts for ``culprit``: the
        function or cell that is run."""
        job = self._ensure_running()
        connection = job.connection
        limits, budget, grace = self.limits, self._budget, self.crashes.grace(culprit)
        idle_seconds = cpu_seconds * limits.patience
        wall_seconds = idle_seconds * (STARVED if job.tree else 1)
        if budget.is_spent or self.crashes.is_known(culprit):
            cpu_seconds = idle_seconds = min(cpu_seconds, limits.retry)
        counts_threads, self._has_rested = cell is not None and not self._has_rested, False
        monitor = UsageMonitor(job, cpu_seconds, idle_seconds, limits, budget, grace, counts_threads)
        deadline = time.monotonic() + wall_seconds  # for all frames together
        watch = Watch(monitor.look)
        try:
            if frames:
                connection.send_frames(frames, wall_seconds, watch)
            while True:
                reply, reply_payload = connection.receive(max(0.0, deadline - time.monotonic()), watch)
                if "callback" not in reply:
                    break
                monitor.count_callback(len(reply_payload))
                began, start = time.monotonic(), time.process_time()
                with kernel_limit(cpu_seconds + CALLBACK_MARGIN):
                    answer, answer_payload = self._answer_callback(reply, reply_payload)
                monitor.charge_callback(time.process_time() - start, time.monotonic() - began)
                connection.send(answer, answer_payload, max(0.0, deadline - time.monotonic()), watch)
            if "failed" in reply:
                raise PeerGone("the notebook's own loop ended: " + str(reply["failed"])[:200])
            if reply.get("serial") != serial:
                raise WireError("reply to another request")
            if cell is not None:
                monitor.look()  # charge this cell for what it leaves running
                self._has_rested = True
                if monitor.more_threads > 0 and not self._cells_with_orphans.intersection(self._history):
                    # Otherwise an earlier cell's processes may have started them: a run without that cell will show.
                    self._cells_with_orphans.add(cell)
            return reply, reply_payload
        except StudentError:  # it went over a limit
            self._abandon(culprit)
            raise
        except PeerSlow:
            self._abandon(culprit)
            raise StudentError(("TimeoutError",), f"it did not finish within {wall_seconds:g} seconds") from None
        except PeerGone:
            out_of_memory = job.ran_out_of_memory()
            self._abandon(culprit)
            if out_of_memory:
                raise StudentError(
                    ("MemoryError",), f"it used more than {self.limits.memory / 2**30:.1f} GB of memory"
                ) from None
            raise StudentError(
                ("ProcessEnded",), "it ended the Python process (exit, crash, memory or CPU limit)"
            ) from None
        except WireError as error:
            self._abandon(culprit)
            raise garbage(error) from error

    def _answer_callback(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        encoder, decoder = Encoder(self._refer), self._decoder(payload)
        try:
            number = request["callback"]
            function = self._callbacks[number] if number >= 0 else list(self._replaced.values())[-1 - number]
            args, kwargs = decoder.decode(request["args"]), decoder.decode(request["kwargs"])
            value = (
                gradients(function, args, kwargs, decoder.decode(request["cotangents"]))
                if "cotangents" in request
                else function(*args, **kwargs)
            )
            reply: dict[str, Any] = {"value": encoder.encode(value)}
        except WireError:
            raise
        except Exception as error:
            reply = {"raise": str(error)[:500], "type": type(error).__name__}
        return reply, bytes(encoder.payload)

    def _without_orphans(self, ask: Callable[[], tuple[dict[str, Any], bytes]]) -> tuple[dict[str, Any], bytes]:
        """Ask. If that fails while processes of earlier cells may still run, ask again without these cells."""
        history, crashes = self._history, self.crashes.counts()
        while True:
            try:
                return ask()
            except StudentError as error:
                if self._forget_orphans(error):
                    self.crashes.take_back(crashes)  # the code that was asked may not be the cause
                    continue
                if self._history is not history:  # the cells left out were not the cause
                    self._history = history
                    if self._job is not None:
                        self._abandon()
                raise

    def _forget_orphans(self, error: StudentError) -> bool:
        """Leave out the cells whose processes may have caused ``error``. Returns whether there were any."""
        kept = [entry for entry in self._history if entry not in self._cells_with_orphans]
        if error.type_names[0] not in BY_ANY_PROCESS or len(kept) == len(self._history):
            return False
        self._history = kept
        return True

    def _abandon(self, culprit: str = "") -> None:
        self.crashes.note(culprit, bool(self._replaced))
        self._ahead.lose()
        if self.close():
            raise SandboxError("the machine ran out of memory; free some, or grade fewer at the same time (WORKERS=1)")

    def _ensure_running(self) -> Job:
        """Return the fork to ask. After a crash or time-out, open one and rerun the earlier cells that do not fail."""
        while self._job is None:
            if self._is_over:
                raise StudentError(("TimeoutError",), "not run: what this notebook returns takes too long to check")
            self.crashes.require_few_of_cells()
            self.generation += 1
            self._job = self.sandbox.open(self.files, self.seed)
            for cell, source in list(self._history):
                try:
                    self._execute(cell, source)
                except StudentError as error:
                    if not self._forget_orphans(error):
                        self._history.remove((cell, source))
                    break
            if self._replaced and self._job is not None:
                self._request(self._replacements(), self.limits.call_cpu)
        return self._job

    # ---- values

    def _decoder(self, payload: bytes, name: str | None = None, origin: str = "") -> Decoder:
        return Decoder(payload, lambda number: RemoteObject(self, number, name, origin), device=self.sandbox.device)

    def _refer(self, value: Any) -> dict[str, Any] | None:
        if isinstance(value, RemoteObject):
            return {"r": self._target(value)}
        if callable(value):
            self._callbacks.append(value)
            return {"c": len(self._callbacks) - 1}
        return None

    def _target(self, proxy: RemoteObject) -> int:
        if proxy._generation != self.generation or self._job is None:
            self._ensure_running()
            fresh = self.lookup([proxy._name]).get(proxy._name) if proxy._name else None
            if not isinstance(fresh, RemoteObject):
                raise StudentError(
                    ("ProcessEnded",), "an earlier call ended the Python process, and this object with it"
                )
            proxy._number, proxy._generation = fresh._number, self.generation
        return proxy._number
