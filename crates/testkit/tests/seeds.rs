//! Replays the inputs that the fuzzer found.

use stayput_testkit::fuzz;

#[test]
fn the_saved_corpus_holds() {
    type Target = (&'static str, fn(&[u8]));
    let targets: [Target; 7] = [
        ("handle", fuzz::handle),
        ("key", fuzz::key),
        ("record", fuzz::record),
        ("event", fuzz::event),
        ("address", fuzz::address),
        ("message", fuzz::message),
        ("stream", fuzz::stream),
    ];
    for (target, check) in targets {
        assert!(fuzz::replay(target, check) > 0, "fuzz/seeds/{target} is empty");
    }
}
