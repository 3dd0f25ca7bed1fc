//! Onceward against real parts. Each module is one promise; each test's name says which.

mod guarantees;
