//! A store of versions in memory, for tests.
