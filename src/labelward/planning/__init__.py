"""The planner: time, traffic and memory of a training, estimated before it begins."""
