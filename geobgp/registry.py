"""Open families: classes that are stored under their own name, and found again by it."""

from __future__ import annotations

from typing import Generic, TypeVar

from geobgp.errors import DataError

T = TypeVar("T")


class Family(Generic[T]):
    """Classes of one kind by name: kernels, bases, likelihoods.

    Parameters
    ----------
    noun : str
        What a member is, for messages.

    Examples
    --------
    >>> animals: Family[object] = Family("animal")
    >>> class Cat: ...
    >>> animals.add(Cat)
    >>> animals.name_of(Cat()), animals.find("Cat") is Cat
    ('Cat', True)
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._members: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Register a class under its own name; a class that is defined again takes its old self's place."""
        known = self._members.get(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise DataError(
                f"There is a {self.noun} {cls.__name__!r} already, in {known.__module__}.",
                remedy="Give yours another name.",
            )
        self._members[cls.__name__] = cls

    def name_of(self, member: T) -> str:
        """Return the name that an object is stored under, or say that it has none."""
        name = type(member).__name__
        if self._members.get(name) is not type(member):
            raise DataError(
                f"The {self.noun} {name!r} is not registered, so that it could not be read again.",
                found=name,
                remedy=f"Derive it from geobgp's own {self.noun} class.",
            )
        return name

    def find(self, name: str) -> type[T]:
        """Return the class that was stored under a name."""
        if name not in self._members:
            raise DataError(
                f"Unknown {self.noun} {name!r} in a stored file; known are {', '.join(self._members)}.",
                found=name,
                remedy="Import the module that defines it first.",
            )
        return self._members[name]
