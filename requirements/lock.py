"""Prints name==version of every installed package that the extras `dev` and `fuzz` need, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = ("dev", "fuzz")


def own(extras: Iterable[str] = EXTRAS) -> Iterator[Requirement]:
    """What pyproject.toml asks for on this machine, with these extras."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    for wanted in map(Requirement, lines):
        if wanted.name == project["name"]:
            yield from own(wanted.extras)
        elif wanted.marker is None or wanted.marker.evaluate():
            yield wanted


def closure(wanted: Iterable[Requirement], seen: set[tuple[str, str]]) -> Iterator[str]:
    """Names of installed packages: those that are wanted, and what they need in turn."""
    for each in wanted:
        name = canonicalize_name(each.name)
        for extra in {"", *each.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            yield name
            lines = map(Requirement, requires(name) or ())
            yield from closure((r for r in lines if r.marker is None or r.marker.evaluate({"extra": extra})), seen)


def locked() -> dict[str, str]:
    """Package -> version, without a build's own suffix such as "+cpu"."""
    try:
        names = sorted(set(closure(own(), set())))
    except PackageNotFoundError as error:
        raise SystemExit(
            f"{error.name} is missing | expected all of the extras | pip install -e '.[dev,fuzz]'"
        ) from error
    return {name: Version(distribution(name).version).public for name in names}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in locked().items()))  # noqa: T201
