//! The program `stayput`.
fn main() {}
