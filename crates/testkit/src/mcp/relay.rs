//! Stdio server whose messages a test reads and writes itself.

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncWriteExt, copy, stdin, stdout},
    net::TcpStream,
    time::timeout,
};

/// Time that the test may take to close the connection after the end of standard input.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Copies standard input to the connection, and the connection to standard output. The end of either is
/// passed on; the process ends when the test closes the connection.
pub(super) async fn run(port: u16) {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let (mut from_test, mut to_test) = socket.into_split();
    let inward = async {
        let _ = copy(&mut stdin(), &mut to_test).await;
        let _ = to_test.shutdown().await;
        let _ = timeout(CLOSE_TIMEOUT, std::future::pending::<()>()).await;
    };
    let outward = async {
        let mut stdout = stdout();
        let _ = copy(&mut from_test, &mut stdout).await;
        let _ = stdout.flush().await;
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}
