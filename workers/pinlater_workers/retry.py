"""When a failed job is tried again. A policy is pure: the attempt and the error in, a delay out."""

from __future__ import annotations
