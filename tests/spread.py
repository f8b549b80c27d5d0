"""Distribution of tests to processes: xdist's, by groups, made safe against processes that die."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class Scheduler(LoadGroupScheduling):
    """xdist's scheduler with two fixes. A test that killed its process is not run again, or it could kill them all. A
    process that is still starting gets no tests: if another died meanwhile, xdist would fail and wait forever."""

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
