"""The packages of the project, in three folders; all else stands in setup.cfg."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["pinlater", "pinlater.*"]),
        *find_packages("workers", include=["pinlater_workers", "pinlater_workers.*"]),
        "pinlater.idl",
    ]
)
