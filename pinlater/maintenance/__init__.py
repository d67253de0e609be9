"""What a server does in the background: for the shards that are its own, and to keep up with its cluster."""

from pinlater.maintenance.rounds import begin_rounds
from pinlater.maintenance.tasks import Maintenance, MaintenanceSettings

__all__ = ["Maintenance", "MaintenanceSettings", "begin_rounds"]
