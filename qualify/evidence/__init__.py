"""Evidence: plans opened before anything is measured, runs sealed by one rename, audits that trust neither.

`store` writes, `audit` verifies from disk alone, `report` prints what an audit found. The verifier takes no lock,
writes nothing and follows no link (R11.4); it looks at several runs side by side.
"""
