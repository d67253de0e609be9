"""The interface as thriftpy2 reads it, whose classes any plain client of it uses."""

from __future__ import annotations

import thriftpy2

from pinlater.wire.interface_file import interface_path

MODULE = thriftpy2.load(str(interface_path()), module_name="pinlater_thrift")
