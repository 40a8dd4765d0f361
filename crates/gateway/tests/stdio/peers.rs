//! Third-party clients, which start `stayput stdio` like any server.

use stayput_testkit::{peers, program};

use crate::{
    driven::Driven,
    kit::{Home, servers},
    support::{gone, mark},
};

/// R163: SDKs for Python and TypeScript in both eras. Two concurrent clients have a session each, and a process ends
/// with its client.
#[tokio::test]
async fn sdks_have_sessions_over_stdio() {
    if peers::are_left_out() {
        return;
    }
    let home = Home::new();
    let stayput = env!("CARGO_BIN_EXE_stayput");
    let server = program("stayput-testserver");
    for (file, mode, version) in [
        ("python_stdio.py", Some("legacy"), "2025-11-25"),
        ("python_stdio.py", Some("auto"), "2026-07-28"),
        ("typescript1.mjs", None, "unknown"),
        ("typescript2_stdio.mjs", Some("legacy"), "2025-11-25"),
        ("typescript2_stdio.mjs", Some("auto"), "2026-07-28"),
    ] {
        let mark = mark(&format!("sdk-{file}-{}", mode.unwrap_or_default()));
        let mut peer = peers::client(file);
        peer.env.push(("XDG_DATA_HOME", home.0.path().join("data").into()));
        let mut args: Vec<&str> = mode.into_iter().collect();
        args.extend([stayput, "stdio", "--", server.to_str().unwrap(), "stdio"]);
        args.extend(["--era", "legacy", "--mark", &mark]);
        let mut client = Driven::start(&peer, &args);
        for name in ["ann", "bob"] {
            assert_eq!(client.open(name).await, version, "{file} {mode:?}");
        }
        for n in 1..=2 {
            assert_eq!((client.count("ann").await, client.count("bob").await), (n, n), "{file}");
        }
        assert_eq!(servers(&mark), 2, "{file} {mode:?}");
        client.close("ann").await;
        assert_eq!(client.count("bob").await, 3);
        client.close("bob").await;
        drop(client);
        gone(&mark).await;
    }
    assert_eq!(home.daemons().len(), 1, "one for all");
    home.deserted().await;
}
