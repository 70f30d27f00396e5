"""The children: processes that compile, measure or evaluate, started by name and imported by nobody."""
