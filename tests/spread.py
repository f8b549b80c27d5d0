"""How tests are handed to processes: by groups, as xdist does it, and also where processes die."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class Scheduler(LoadGroupScheduling):
    """A test that has ended its process is not handed out again, or it could end them all. And a process that is only just
    starting gets nothing yet: xdist fails there, and then waits for ever, when another dies in the meantime."""

    _is_removing = False

    def _reschedule(self, node: Any) -> None:
        if not self._is_removing and node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        self._is_removing = True
        try:
            ended_it = super().remove_node(node)
        finally:
            self._is_removing = False
        for scope, unit in list(self.workqueue.items()):
            if ended_it in unit:
                unit[ended_it] = True
            if all(unit.values()):
                del self.workqueue[scope]
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_it
