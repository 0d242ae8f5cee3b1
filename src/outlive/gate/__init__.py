"""The deploy gate: which runs in flight would this change break? New code against recorded logs, with nothing done."""
