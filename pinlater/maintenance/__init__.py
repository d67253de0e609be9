"""Work in the background, on its own clockwork: expiry, dead letters and pruning for the shards that a process owns."""

from pinlater.maintenance.periodic import Periodic
from pinlater.maintenance.runner import MaintenanceRunner, MaintenanceSettings
from pinlater.maintenance.tasks import Task, tasks

__all__ = ["MaintenanceRunner", "MaintenanceSettings", "Periodic", "Task", "tasks"]
