"""What in the functions of agents would replay differently: read from their source, and never run.

It follows what an agent calls outside of steps and tools, as far as names lead to objects that are there. What cannot
be known is passed over: a finding is something to mend.
"""
