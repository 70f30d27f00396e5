"""Cohorts: an operation's cells, routes and contract, from untrusted YAML to subjects with composed modules."""

from qualify.cohort.cohort import Cohort, Route, load
from qualify.cohort.composition import Composition, compose
from qualify.cohort.selection import Selection, subject, subjects

__all__ = ["Cohort", "Composition", "Route", "Selection", "compose", "load", "subject", "subjects"]
