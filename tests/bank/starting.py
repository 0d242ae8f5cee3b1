"""The type of the fixture `start`."""

from typing import Protocol, Unpack

from examples.dunning.bank_process import BankProcess, Modes


class StartBank(Protocol):
    def __call__(self, **modes: Unpack[Modes]) -> BankProcess: ...
